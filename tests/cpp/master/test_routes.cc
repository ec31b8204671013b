#include "master/routes.h"

#include <gtest/gtest.h>

#include "csrc/protocol/shares.h"

namespace pccl::master {
namespace {

constexpr PeerId kOne{1}, kTwo{2}, kThree{3}, kFour{4};

// Four peers in rank order; the RTT between two is the sum of their ids in ms.
class RoutesTest : public testing::Test {
 protected:
  void link(PeerId a, PeerId b) {
    links_.add(a, b);
    const auto rtt = static_cast<uint32_t>(1000 * (a.value + b.value));
    links_.report(a, {b, protocol::LinkState::kUp, "", 1, rtt});
  }
  const std::vector<PeerId> members_ = {kOne, kThree, kTwo, kFour};
  Links links_;
};

TEST_F(RoutesTest, AMeshHasALinkOfEachPair) {
  link(kOne, kTwo);
  link(kOne, kThree);
  link(kOne, kFour);
  link(kTwo, kThree);
  link(kTwo, kFour);
  EXPECT_FALSE(is_mesh(links_, members_));
  EXPECT_TRUE(is_mesh(links_, {kOne, kTwo, kFour}));
  link(kThree, kFour);
  EXPECT_TRUE(is_mesh(links_, members_));
  links_.report(kFour, {kThree, protocol::LinkState::kDown, "reset", 1});
  EXPECT_FALSE(is_mesh(links_, members_)) << "it is down";
  EXPECT_TRUE(is_mesh(links_, {kOne}));
}

TEST_F(RoutesTest, TheRingHasFewerPathsThanTheMesh) {
  for (const PeerId a : members_) {
    for (const PeerId b : members_) {
      if (a < b) link(a, b);
    }
  }
  EXPECT_EQ(longest_rtt_in_ring(links_, members_), 6000u);  // 1+3, 3+2, 2+4, 4+1
  EXPECT_EQ(longest_rtt_in_mesh(links_, members_), 7000u);  // 3+4
}

TEST(Routes, SharesThatDoNotFitAreReplacedByEqualOnes) {
  EXPECT_EQ(shares_of({0, 256, 0}, 3), (std::vector<uint16_t>{0, 256, 0}));
  EXPECT_EQ(shares_of({0, 256, 0}, 2), (std::vector<uint16_t>{128, 128}));
  EXPECT_EQ(shares_of({1, 2, 3}, 3), protocol::equal_shares(3));
  EXPECT_EQ(shares_of({}, 4), protocol::equal_shares(4));
}

}  // namespace
}  // namespace pccl::master
