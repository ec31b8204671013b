// PeerLink: the choice of a lane. test_core.cc checks the chunks in flight.
#include "csrc/ring/peer_link.h"

#include <gtest/gtest.h>

namespace pccl::ring {
namespace {

constexpr PeerId kPeer{3};

PeerLink link_of(size_t lanes) {
  PeerLink link(kPeer);
  link.epoch = Epoch{5};
  link.lanes.resize(lanes);
  for (PeerLink::Lane& lane : link.lanes) lane.open_sent = lane.open_received = Epoch{5};
  return link;
}

Operation all_reduce(uint64_t count) {
  return {{.epoch = Epoch{5},
           .op = {},
           .shape = {.rank = 1, .world = 3, .element_bytes = 4, .count = count, .block_bytes = {}},
           .upstream = kPeer,
           .downstream = kPeer},
          1};
}

TEST(PeerLink, OnlyALaneThatBothEndsHaveOpenedIsReady) {
  PeerLink link = link_of(2);
  link.lanes[0].open_received = Epoch{4};
  EXPECT_EQ(link.free_lane(), 1u);
  link.lanes[1].open_sent = Epoch{6};
  EXPECT_EQ(link.free_lane(), std::nullopt);
}

TEST(PeerLink, SmallFramesPreferActiveLanesWithoutAChunk) {
  Operation operation = all_reduce(1000);
  PeerLink link = link_of(3);
  link.lanes[0].sending.operation = &operation;
  link.inactive = 0b010;
  EXPECT_EQ(link.free_lane(), 2u);
  link.lanes[2].sending.operation = &operation;
  EXPECT_EQ(link.free_lane(), 0u) << "an inactive lane is the last choice";
  link.inactive = 0b111;
  link.next = 1;
  EXPECT_EQ(link.free_lane(), 1u);
}

TEST(PeerLink, ANarrowLaneIsUsedOnlyForALongQueue) {
  const Operation operation = all_reduce(3'000'000);
  const uint32_t chunk = operation.schedule.slot_bytes();
  PeerLink link = link_of(2);
  link.lanes[1].window = chunk / 2;
  link.lanes[0].window = 8 * chunk;
  link.next = 1;
  EXPECT_EQ(link.lane_for_chunk(operation, chunk), 0u);
  Operation other = all_reduce(1000);
  link.lanes[0].sending.operation = &other;
  EXPECT_EQ(link.lane_for_chunk(operation, chunk), std::nullopt);
  EXPECT_EQ(link.lane_for_chunk(operation, uint64_t{1000} * chunk), 1u);
}

TEST(PeerLink, RevokesAndWithdrawsInTheOrderOfTheLanes) {
  Operation one = all_reduce(1000), other = all_reduce(1000);
  PeerLink link = link_of(3);
  link.lanes[0].landing.operation = link.lanes[1].sending.operation = &one;
  link.lanes[2].landing.operation = link.lanes[2].sending.operation = &other;
  Effects effects;
  link.revoke([&](const InFlightChunk& landing) { return landing.operation == &one; }, effects);
  link.withdraw(one, effects);
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(std::get<Revoke>(effects[0]).lane, (LaneId{kPeer, 0}));
  EXPECT_EQ(std::get<Withdraw>(effects[1]).lane, (LaneId{kPeer, 1}));
  EXPECT_FALSE(link.lanes[0].landing.any() || link.lanes[1].sending.any());
  EXPECT_TRUE(link.lanes[2].landing.any() && link.lanes[2].sending.any());
}

TEST(PeerLink, AFailedLinkHasNoReadyLane) {
  PeerLink link = link_of(1);
  Effects effects;
  link.fail("a reason", effects);
  EXPECT_EQ(link.free_lane(), std::nullopt);
  EXPECT_EQ(std::get<FailLink>(effects.at(0)).why, "a reason");
}

Operation with_priority(int8_t priority, bool pulled = false) {
  return {{.epoch = Epoch{5},
           .op = {},
           .shape = {.rank = 1, .world = 3, .element_bytes = 4, .count = 1000, .block_bytes = {}},
           .upstream = kPeer,
           .downstream = kPeer,
           .priority = priority,
           .pulled = pulled},
          1};
}

TEST(PeerLink, ALowerPriorityLeavesLanesFreeWhileAHigherOneMoves) {
  PeerLink link = link_of(3);
  Operation low = with_priority(0), high = with_priority(2);
  link.leaves(low);
  EXPECT_FALSE(link.holds_back(low));
  link.arrived(high);
  EXPECT_FALSE(link.holds_back(low)) << "no chunk is leaving";
  link.lanes[1].sending.operation = &low;
  EXPECT_TRUE(link.holds_back(low));
  EXPECT_FALSE(link.holds_back(high));
  for (int chunk = 0; chunk < 7; ++chunk) link.leaves(low);
  EXPECT_TRUE(link.holds_back(low));
  link.leaves(high);
  for (int chunk = 0; chunk < 7; ++chunk) link.leaves(low);
  EXPECT_TRUE(link.holds_back(low)) << "the higher one has moved in between";
  link.leaves(low);
  EXPECT_FALSE(link.holds_back(low)) << "the higher one has stopped";
  link.leaves(low);
  link.arrived(low);
  EXPECT_FALSE(link.holds_back(low));
}

TEST(PeerLink, SharedStateIsNotHeldBackAndHoldsNobodyBack) {
  PeerLink link = link_of(2);
  Operation low = with_priority(-8), state = with_priority(0, true), high = with_priority(1);
  link.lanes[0].sending.operation = &high;
  link.leaves(state);
  link.arrived(state);
  EXPECT_FALSE(link.holds_back(low));
  link.leaves(high);
  EXPECT_TRUE(link.holds_back(low));
  EXPECT_FALSE(link.holds_back(state));
}

}  // namespace
}  // namespace pccl::ring
