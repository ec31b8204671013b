#include "csrc/link/lane_keys.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"

namespace pccl::link {
namespace {

using protocol::Key;
using protocol::LaneIdentity;

constexpr PeerId kOwn{5}, kForeign{8};
constexpr uint64_t kRun = 99;

LaneIdentity identity(PeerId dialler, uint32_t incarnation) {
  return {dialler, kOwn, incarnation, 1};
}

struct LaneKeysTest : testing::Test {
  bool lets_in(PeerId dialler, uint32_t incarnation) const {
    return keys.find(identity(dialler, incarnation), kOwn, kRun).has_value();
  }
  void accept_with(uint32_t incarnation) {
    keys.accept_with({incarnation, Key{{incarnation, 0, 0, 0}}});
    keys.check();
  }
  void forget(PeerId peer) {
    keys.forget(peer);
    keys.check();
  }
  LaneKeys keys;
};

TEST_F(LaneKeysTest, WithoutAKeyNobodyNeedsOne) {
  EXPECT_FALSE(keys.required());
  forget(kForeign);
  EXPECT_FALSE(lets_in(kForeign, 1));
  accept_with(1);
  EXPECT_TRUE(keys.required());
  EXPECT_TRUE(lets_in(kForeign, 1));
}

TEST_F(LaneKeysTest, AnOlderOrRepeatedKeyIsIgnored) {
  accept_with(2);
  const auto before = keys.find(identity(kForeign, 2), kOwn, kRun);
  keys.accept_with({2, Key{{7, 7, 7, 7}}});
  keys.accept_with({1, Key{{7, 7, 7, 7}}});
  EXPECT_EQ(keys.find(identity(kForeign, 2), kOwn, kRun), before);
  EXPECT_FALSE(lets_in(kForeign, 1));
}

TEST_F(LaneKeysTest, AGonePeerIsRefusedUntilALaterMasterNamesItAgain) {
  accept_with(1);
  accept_with(2);
  forget(kForeign);
  EXPECT_FALSE(lets_in(kForeign, 1));
  EXPECT_FALSE(lets_in(kForeign, 2));
  accept_with(3);
  EXPECT_FALSE(lets_in(kForeign, 2));
  EXPECT_TRUE(lets_in(kForeign, 3)) << "it waited for its admission, and the master was restarted";
  accept_with(4);
  EXPECT_TRUE(lets_in(kForeign, 4));
}

TEST_F(LaneKeysTest, TheOldestGonePeerMakesRoom) {
  accept_with(1);
  for (uint64_t i = 0; i <= protocol::kGonePeersMax; ++i) keys.forget(PeerId{100 + i});
  keys.check();
  EXPECT_TRUE(lets_in(PeerId{100}, 1));
  EXPECT_FALSE(lets_in(PeerId{101}, 1));
}

}  // namespace
}  // namespace pccl::link
