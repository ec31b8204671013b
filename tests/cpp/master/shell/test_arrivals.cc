#include "master/shell/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "csrc/protocol/limits.h"

namespace pccl::master {
namespace {

using Proof = Arrivals::Proof;

class ArrivalsTest : public ::testing::Test {
 protected:
  ConnectionId add(Proof proof = Proof::kNone, const std::string& host = "127.0.0.1") {
    const ConnectionId id{++last_};
    arrivals_.add(id, host, proof, now_);
    return id;
  }
  std::vector<ConnectionId> take(size_t total) { return arrivals_.take_excess(total, now_); }

  Arrivals arrivals_;
  Instant now_;
  uint64_t last_ = 0;
};

using Ids = std::vector<ConnectionId>;

TEST_F(ArrivalsTest, SilentStrangersPushOutNoProvenConnection) {
  const ConnectionId proven = add();
  arrivals_.add(proven, "127.0.0.1", Proof::kToken, now_);
  Ids closed;
  for (int i = 0; i < 100; ++i) {
    add();
    for (const ConnectionId id : take(64)) closed.push_back(id);
  }
  EXPECT_EQ(arrivals_.size(), 64u);
  EXPECT_EQ(closed.size(), 37u);
  EXPECT_EQ(std::count(closed.begin(), closed.end(), proven), 0);
  EXPECT_EQ(closed[0], ConnectionId{2}) << "the oldest stranger";
}

TEST_F(ArrivalsTest, AProofLeavesRoomForStrangers) {
  for (int i = 0; i < 10; ++i) add(Proof::kToken);
  for (int i = 0; i < 10; ++i) add();
  const Ids closed = take(8);
  EXPECT_EQ(closed.size(), 12u);
  EXPECT_EQ(arrivals_.size(), 8u);
  EXPECT_EQ(closed[5], ConnectionId{6}) << "four with a proof are left";
  EXPECT_EQ(closed[6], ConnectionId{11});
  EXPECT_EQ(take(8), Ids{});
}

TEST_F(ArrivalsTest, AConnectionIsThereOnce) {
  const ConnectionId id = add();
  arrivals_.add(id, "127.0.0.1", Proof::kToken, now_);
  EXPECT_EQ(arrivals_.size(), 1u);
  arrivals_.remove(id);
  arrivals_.remove(id);
  EXPECT_EQ(arrivals_.size(), 0u);
  EXPECT_EQ(arrivals_.deadline(), std::nullopt);
}

TEST_F(ArrivalsTest, AProvenConnectionHasItsTimeToo) {
  const Instant first = now_;
  const ConnectionId stranger = add();
  now_ = now_ + std::chrono::seconds(1);
  const ConnectionId proven = add(Proof::kToken);
  EXPECT_EQ(*arrivals_.deadline(), first + protocol::kHelloTimeout);
  now_ = *arrivals_.deadline();
  EXPECT_EQ(take(8), Ids{stranger});
  EXPECT_EQ(*arrivals_.deadline(), now_ + std::chrono::seconds(1));
  now_ = *arrivals_.deadline();
  EXPECT_EQ(take(8), Ids{proven});
}

TEST_F(ArrivalsTest, AFullNetworkIsOneOfStrangers) {
  for (size_t i = 0; i < net::PendingConnections::kBurstMax; ++i) add(Proof::kToken, "10.0.0.1");
  EXPECT_FALSE(arrivals_.full("10.0.0.1"));
  for (size_t i = 0; i < net::PendingConnections::kBurstMax; ++i) add(Proof::kNone, "10.0.0.1");
  EXPECT_TRUE(arrivals_.full("10.0.0.1"));
}

}  // namespace
}  // namespace pccl::master
