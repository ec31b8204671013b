#include "master/epochs/ring_order.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

// All paths between the peers 1 to 4 have the same RTT, until a test changes some.
class RingOrderTest : public testing::Test {
 protected:
  using Ring = topology::Tour;
  RingOrderTest() {
    for (uint32_t a = 1; a <= 4; ++a) {
      for (uint32_t b = 1; b < a; ++b) {
        links_.add({b}, {a});
        measured({b}, {a}, 40'000);
      }
    }
  }
  void measured(PeerId a, PeerId b, uint32_t microseconds) {
    links_.report(a, {b, protocol::LinkState::kUp, "", ++serial_, microseconds});
  }
  static std::vector<PeerId> peers(const std::vector<uint64_t>& numbers) {
    std::vector<PeerId> peers;
    for (const uint64_t number : numbers) peers.push_back({number});
    return peers;
  }
  // The epoch before had these members, in rank order, and this ring.
  Ring after(const std::vector<uint64_t>& numbers, const Ring& ring,
             const std::vector<uint64_t>& now, const RoutePlan* plan = nullptr) const {
    protocol::EpochStart before;
    for (const PeerId peer : peers(numbers)) before.members.push_back({peer, "10.0.0.1"});
    before.ring = ring;
    return ring_order(links_, peers(now), {&before, plan});
  }
  uint32_t serial_ = 0;
  Links links_;
};

TEST_F(RingOrderTest, TheFirstRingHasTheOrderOfTheRanks) {
  EXPECT_EQ(ring_order(links_, peers({2, 4, 1})), (Ring{0, 1, 2}));
  EXPECT_EQ(ring_order(links_, peers({3})), (Ring{0}));
}

TEST_F(RingOrderTest, APlanForTheseMembersIsObeyed) {
  const RoutePlan plan{peers({1, 2, 3, 4}), {{0, 2, 3, 1}, {}, {}}};
  EXPECT_EQ(after({1, 2, 3}, {0, 2, 1}, {1, 2, 3, 4}, &plan), (Ring{0, 2, 3, 1}));
  EXPECT_EQ(after({1, 2, 3}, {0, 2, 1}, {1, 2, 3}, &plan), (Ring{0, 2, 1})) << "other members";
}

TEST_F(RingOrderTest, TheRingGoesOnWithoutTheLost) {
  EXPECT_EQ(after({1, 2, 3, 4}, {0, 2, 3, 1}, {1, 2, 4}), (Ring{0, 2, 1}))
      << "the rank of the fourth falls to 2";
}

// The fourth peer is near the first and the third.
TEST_F(RingOrderTest, ANewcomerComesWhereItCostsLeast) {
  measured({1}, {4}, 2000);
  measured({2}, {4}, 90'000);
  measured({3}, {4}, 2000);
  EXPECT_EQ(after({1, 2, 3}, {0, 2, 1}, {1, 2, 3, 4}), (Ring{0, 3, 2, 1}));
  EXPECT_EQ(after({1, 2, 3}, {0, 1, 2}, {1, 2, 3, 4}), (Ring{0, 1, 2, 3}))
      << "no plan has made this ring";
}

TEST_F(RingOrderTest, ARingOfNewcomersAloneFollowsTheRanksIfAllPathsAreAlike) {
  EXPECT_EQ(after({4, 5, 6}, {2, 0, 1}, {1, 2, 3}), (Ring{0, 1, 2}));
}

}  // namespace
}  // namespace pccl::master
