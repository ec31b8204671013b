#include "csrc/net/pending_connections.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"

namespace pccl::net {
namespace {

using std::chrono::milliseconds;
using Ids = std::vector<PendingConnections::Id>;

class Pending : public ::testing::Test {
 protected:
  void add(const std::string& host, int count = 1) {
    for (int i = 0; i < count; ++i) pending.add(++last, host, now);
  }
  Ids excess(size_t total = 1000) {
    const Ids taken = pending.take_excess(total, now);
    pending.check();
    return taken;
  }

  PendingConnections pending;
  PendingConnections::Id last = 0;
  Instant now = Instant{} + std::chrono::hours(1);
};

TEST_F(Pending, StaysUntilItsTimeIsOver) {
  EXPECT_EQ(pending.deadline(), std::nullopt);
  const Instant first = now;
  add("10.0.0.1");
  now = now + milliseconds(1);
  add("10.0.0.2");
  EXPECT_EQ(excess(), Ids{});
  EXPECT_EQ(*pending.deadline(), first + protocol::kHelloTimeout);
  now = *pending.deadline();
  EXPECT_EQ(excess(), (Ids{1}));
  pending.remove(2);
  pending.remove(2);
  EXPECT_EQ(pending.size(), 0u);
  EXPECT_EQ(pending.deadline(), std::nullopt);
}

TEST_F(Pending, AFloodPushesOutItsOwn) {
  add("10.0.0.9");
  add("10.0.0.1", 5);
  add("10.0.0.2", 3);
  add("10.0.0.8");
  EXPECT_EQ(excess(8), (Ids{2, 3})) << "the oldest of the network with the most";
  for (int i = 0; i < 100; ++i) {
    add("10.0.0.1", 3);
    add("10.0.0.2", 2);
    excess(8);
    EXPECT_TRUE(pending.contains(1));
    EXPECT_TRUE(pending.contains(10));
    EXPECT_EQ(pending.size(), 8u);
  }
}

TEST_F(Pending, ManyOfOneNetworkMayComeAtOnceButNotStay) {
  add("10.0.0.1", 200);
  EXPECT_EQ(excess(), Ids{}) << "their first bytes may have arrived";
  const Instant first = now;
  EXPECT_EQ(*pending.deadline(), now + PendingConnections::kYoung);
  now = *pending.deadline();
  const Ids gone = excess();
  EXPECT_EQ(gone.size(), 200 - PendingConnections::kPerNetworkMax);
  EXPECT_EQ(gone.front(), 1u);
  EXPECT_FALSE(pending.contains(136));
  EXPECT_TRUE(pending.contains(137));
  EXPECT_EQ(*pending.deadline(), first + protocol::kHelloTimeout);
}

TEST_F(Pending, TheOwnerMayAllowANetworkMore) {
  PendingConnections crowd(100);
  for (PendingConnections::Id id = 1; id <= 101; ++id) crowd.add(id, "10.0.0.1", now);
  EXPECT_EQ(crowd.take_excess(1000, now + PendingConnections::kYoung), (Ids{1}));
}

TEST_F(Pending, ANetworkIsFullAtSomeNumber) {
  add("10.0.0.1", PendingConnections::kBurstMax - 1);
  EXPECT_FALSE(pending.full("10.0.0.1"));
  add("10.0.0.1");
  EXPECT_TRUE(pending.full("10.0.0.1"));
  EXPECT_FALSE(pending.full("10.0.0.2"));
  pending.remove(1);
  EXPECT_FALSE(pending.full("10.0.0.1"));
}

TEST_F(Pending, ThisMachineMayHaveMany) {
  add("127.0.0.1", 200);
  add("::1", 200);
  now = now + 10 * PendingConnections::kYoung;
  EXPECT_EQ(excess(), Ids{});
  EXPECT_EQ(excess(399), (Ids{1})) << "but not more than there is room for";
}

TEST_F(Pending, OldOnesGoAlthoughYoungOnesCome) {
  add("10.0.0.1", 60);
  now = now + PendingConnections::kYoung;
  add("10.0.0.1", 10);
  EXPECT_EQ(excess(), (Ids{1, 2, 3, 4, 5, 6}));
}

TEST_F(Pending, AnIpv6CustomerIsOneNetwork) {
  add("2001:db8:0:1::1");
  add("2001:db8:0:1:ffff::2", 2);
  add("2001:db8:0:2::1", 2);
  EXPECT_EQ(excess(4), (Ids{1}));
}

}  // namespace
}  // namespace pccl::net
