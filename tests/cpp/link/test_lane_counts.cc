#include "csrc/link/lane_counts.h"

#include <gtest/gtest.h>

#include "csrc/link/lane_controller.h"

namespace pccl::link {
namespace {

constexpr PeerId kFirst{3}, kSecond{4}, kThird{6}, kFourth{7};
constexpr Duration kLocalRtt{0}, kWanRtt = std::chrono::milliseconds(100);

TEST(LaneCounts, NeighboursShareTheLanesOfTwo) {
  LaneCounts counts({.lanes_max = 64});
  EXPECT_EQ(counts.open(kLocalRtt), 1u);
  EXPECT_EQ(counts.open(kWanRtt), 64u);
  counts.set_neighbours({kFirst, kSecond});
  EXPECT_EQ(counts.open(kWanRtt), 64u);
  counts.set_neighbours({kFirst, kSecond, kThird, kFourth});
  EXPECT_EQ(counts.open(kWanRtt), 32u);
}

TEST(LaneCounts, AFixedNumberHoldsOnEveryPath) {
  const LaneCounts counts({.lanes = 5, .lanes_max = 64});
  EXPECT_EQ(counts.open(kLocalRtt), 5u);
  EXPECT_EQ(counts.at_first(kFirst, kWanRtt), 5u);
  EXPECT_EQ(LaneCounts({.lanes = 100, .lanes_max = 64}).open(kLocalRtt), 64u);
}

TEST(LaneCounts, ALinkBeginsWithTheNumberThatPaidBefore) {
  LaneCounts counts({.lanes_max = 64});
  EXPECT_EQ(counts.at_first(kFirst, kWanRtt), LaneController::first(kWanRtt));
  counts.learnt(kFirst, 7);
  EXPECT_EQ(counts.at_first(kFirst, kWanRtt), 7u);
  EXPECT_EQ(counts.at_first(kSecond, kWanRtt), LaneController::first(kWanRtt));
}

TEST(LaneCounts, AllLinksTogetherGetTheLanesOfFourNeighbours) {
  LaneCounts counts({.lanes_max = 8});
  counts.learnt(kFirst, 6);
  EXPECT_EQ(counts.wanted(kFirst, kWanRtt, false, 1), 6u);
  EXPECT_EQ(counts.wanted(kFirst, kWanRtt, true, 1), 8u) << "a measured path has all that open";
  EXPECT_EQ(counts.wanted(kFirst, kWanRtt, true, 16), 2u);
  EXPECT_EQ(counts.wanted(kFirst, kWanRtt, false, 100), 1u);
  EXPECT_EQ(counts.wanted(kFirst, kLocalRtt, true, 1), 1u);
}

}  // namespace
}  // namespace pccl::link
