#include "csrc/link/lane_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <vector>

namespace pccl::link {
namespace {

// A path that all lanes share. Each lane carries at most `of_a_lane` bytes per second.
struct Path {
  uint64_t capacity;
  uint64_t of_a_lane;
  uint32_t lanes = protocol::kLanesMax;
  uint32_t slow_lane = 99;
  double noise = 0.05;
  std::vector<int> used_for =
      // Intervals in which each lane has been active. A lane is slow in its first interval.
      std::vector<int>(protocol::kLanesMax, 0);

  // Runs one interval; returns the bytes per second that the active lanes carry.
  uint64_t carry(LaneController& controller, std::mt19937_64& random) {
    std::uniform_real_distribution<double> chance(1 - noise, 1 + noise);
    uint32_t used = 0;
    for (uint32_t lane = 0; lane < lanes; ++lane) used += controller.is_inactive(lane) ? 0 : 1;
    EXPECT_GE(used, 1u);
    std::vector<uint64_t> rates(lanes, 0);
    uint64_t sum = 0;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      used_for[lane] = controller.is_inactive(lane) ? 0 : used_for[lane] + 1;
      if (controller.is_inactive(lane)) continue;
      const bool slow = lane == slow_lane || used_for[lane] == 1;
      const uint64_t share = std::min(of_a_lane, capacity / used) / (slow ? 10 : 1);
      rates[lane] = static_cast<uint64_t>(static_cast<double>(share) * chance(random));
      sum += rates[lane];
    }
    controller.interval(rates, {.queued = used * of_a_lane > capacity});
    controller.check();
    return sum;
  }
};

constexpr uint64_t kMegabit = 125'000;

TEST(LaneController, BeginsWithMoreOnALongerWay) {
  using std::chrono::milliseconds;
  EXPECT_EQ(LaneController::first(Duration{0}), 4u);
  EXPECT_EQ(LaneController::first(milliseconds(12)), 4u);
  EXPECT_EQ(LaneController::first(milliseconds(40)), 10u);
  EXPECT_EQ(LaneController::first(milliseconds(90)), 16u);
  EXPECT_EQ(LaneController::first(std::chrono::hours(1)), 16u);
}

uint32_t used(const LaneController& controller, uint32_t lanes) {
  const auto up = ~protocol::LaneBits{0} >> (protocol::kLanesMax - lanes);
  return static_cast<uint32_t>(std::popcount(~controller.inactive() & up));
}

TEST(LaneController, UsesMoreLanesWhileTheyPay) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    LaneController controller(2);
    Path lossy{.capacity = 1500 * kMegabit, .of_a_lane = 60 * kMegabit};
    for (int interval = 0; interval < 50; ++interval) lossy.carry(controller, random);
    uint64_t sum = 0;  // includes trials of fewer lanes
    for (int interval = 0; interval < 50; ++interval) sum += lossy.carry(controller, random);
    EXPECT_GT(sum / 50, 1350 * kMegabit) << "seed " << seed;
  }
}

// Doubling takes two intervals, because new lanes are slow in their first interval.
TEST(LaneController, UsesMoreAtOnceWhereTheWayIsFree) {
  std::mt19937_64 random(6);
  LaneController controller(8);
  Path wide{.capacity = 10'000 * kMegabit, .of_a_lane = 100 * kMegabit};
  for (int interval = 0; interval < 2 + 3 * 2; ++interval) wide.carry(controller, random);
  EXPECT_EQ(used(controller, protocol::kLanesMax), protocol::kLanesMax);
  EXPECT_EQ(controller.wanted(), protocol::kLanesMax);
}

// Slow start has overshot: for a while the path has neither a queue nor speed.
TEST(LaneController, WaitsWhenMuchWasLost) {
  LaneController controller(8);
  const std::vector<uint64_t> rates(protocol::kLanesMax, 10 * kMegabit);
  controller.interval(rates, {.lossy = true});
  for (int interval = 0; interval < 7; ++interval) {
    EXPECT_EQ(used(controller, protocol::kLanesMax), 8u);
    controller.interval(rates, {});
  }
  EXPECT_EQ(used(controller, protocol::kLanesMax), 16u);
  LaneController lossy(8);  // a path that always loses packets does not block trials for ever
  for (int interval = 0; interval < 9; ++interval) lossy.interval(rates, {.lossy = true});
  EXPECT_EQ(used(lossy, protocol::kLanesMax), 16u);
}

// After a path has queued once, a single interval without a queue may only mean that the other side
// tries fewer lanes.
TEST(LaneController, WaitsForSeveralIntervalsWithoutAQueueOnceThereWasOne) {
  const std::vector<uint64_t> rates(protocol::kLanesMax, 10 * kMegabit);
  LaneController controller(8);
  for (int interval = 0; interval < 5; ++interval) controller.interval(rates, {.queued = true});
  for (int interval = 0; interval < 2; ++interval) controller.interval(rates, {});
  EXPECT_EQ(used(controller, protocol::kLanesMax), 8u);
  controller.interval(rates, {.queued = true});
  for (int interval = 0; interval < 3; ++interval) controller.interval(rates, {});
  EXPECT_EQ(used(controller, protocol::kLanesMax), 16u);
}

// Each trial costs speed.
TEST(LaneController, SoonGivesUpWhatBringsLess) {
  const std::vector<uint64_t> rates(protocol::kLanesMax, 10 * kMegabit);
  const std::vector<uint64_t> half(protocol::kLanesMax, 5 * kMegabit);
  LaneController fewer(8);
  for (int interval = 0; interval < 48; ++interval) fewer.interval(rates, {.queued = true});
  EXPECT_EQ(used(fewer, protocol::kLanesMax), 6u);
  for (int interval = 0; interval < 2; ++interval) fewer.interval(half, {.queued = true});
  EXPECT_EQ(used(fewer, protocol::kLanesMax), 8u);
  LaneController more(8);
  more.interval(rates, {});
  EXPECT_EQ(used(more, protocol::kLanesMax), 16u);
  more.interval(std::vector<uint64_t>(protocol::kLanesMax, 4 * kMegabit), {.lossy = true});
  EXPECT_EQ(used(more, protocol::kLanesMax), 8u);
}

TEST(LaneController, UsesFewerLanesWhereFewerDo) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    LaneController controller(20);
    Path clean{.capacity = 1000 * kMegabit, .of_a_lane = 500 * kMegabit};
    uint64_t sum = 0;
    for (int interval = 0; interval < 400; ++interval) sum += clean.carry(controller, random);
    EXPECT_LE(controller.wanted(), 8u) << "seed " << seed;
    EXPECT_GE(controller.wanted(), 4u) << "seed " << seed;
    EXPECT_GT(sum / 400, 940 * kMegabit) << "trying costs next to nothing";
  }
}

// A link whose lanes are idle at times does not limit the ring.
TEST(LaneController, HalvesThemInADeepQueueWhereSomeAreIdle) {
  LaneController controller(16), fixed(16, true), one(1);
  for (LaneController* each : {&controller, &fixed, &one}) each->set_up(16);
  for (const uint32_t expected : {8u, 4u, 4u}) {
    for (LaneController* each : {&controller, &fixed, &one}) each->idle_in_a_deep_queue(16);
    EXPECT_EQ(used(controller, 16), expected);
    EXPECT_EQ(used(fixed, 16), 16u);
    EXPECT_EQ(used(one, 16), 1u);
  }
}

// No interval would ever end the trial.
TEST(LaneController, EndsATrialWhereSomeAreIdleInADeepQueue) {
  const std::vector<uint64_t> rates(32, 10 * kMegabit);
  for (const uint32_t first : {8u, 4u}) {
    LaneController controller(first);
    controller.interval(rates, {});
    EXPECT_EQ(used(controller, 32), 2 * first);
    controller.idle_in_a_deep_queue(32);
    EXPECT_EQ(used(controller, 32), 4u);
    EXPECT_EQ(controller.wanted(), 4u);
  }
}

// No interval is needed to know that the buffers limit the lanes.
TEST(LaneController, DoublesThemWhereTheirBuffersHoldThem) {
  LaneController controller(6), fixed(6, true);
  for (LaneController* each : {&controller, &fixed}) each->set_up(20);
  for (const uint32_t expected : {12u, 20u}) {
    EXPECT_TRUE(controller.held_by_buffers(20));
    EXPECT_EQ(used(controller, 20), expected);
    EXPECT_EQ(controller.wanted(), expected);
  }
  EXPECT_FALSE(controller.held_by_buffers(20)) << "all are in use";
  EXPECT_FALSE(fixed.held_by_buffers(20));
  EXPECT_EQ(used(fixed, 20), 6u);
}

// The lanes double from the larger number: a trial of more lanes is kept, one of fewer is undone.
TEST(LaneController, EndsATrialWhereTheirBuffersHoldThem) {
  const std::vector<uint64_t> rates(64, 10 * kMegabit);
  LaneController more(8), fewer(8);
  more.interval(rates, {});
  EXPECT_EQ(used(more, 64), 16u);
  EXPECT_TRUE(more.held_by_buffers(64));
  EXPECT_EQ(used(more, 64), 32u);
  EXPECT_EQ(more.wanted(), 32u);
  for (int interval = 0; interval < 48; ++interval) fewer.interval(rates, {.queued = true});
  EXPECT_EQ(used(fewer, 64), 6u);
  EXPECT_TRUE(fewer.held_by_buffers(64));
  EXPECT_EQ(used(fewer, 64), 16u);
}

TEST(LaneController, LeavesOutALaneThatIsMuchSlower) {
  std::mt19937_64 random(1);
  LaneController controller(8);
  Path path{.capacity = 10'000 * kMegabit, .of_a_lane = 100 * kMegabit, .lanes = 8, .slow_lane = 3};
  for (int interval = 0; interval < 3; ++interval) {
    EXPECT_FALSE(controller.is_inactive(3));
    path.carry(controller, random);
  }
  EXPECT_TRUE(controller.is_inactive(3));
  EXPECT_EQ(used(controller, 8), 7u);
  // Intervals in which the slow lane was active. It is tried rarely, in case it is fast now.
  int tried = 0;
  for (int interval = 0; interval < 640; ++interval) {
    path.carry(controller, random);
    tried += controller.is_inactive(3) ? 0 : 1;
  }
  EXPECT_GE(tried, 5);
  EXPECT_LE(tried, 20);
  Path mended{.capacity = 10'000 * kMegabit, .of_a_lane = 100 * kMegabit, .lanes = 8};
  for (int interval = 0; interval < 130; ++interval) mended.carry(controller, random);
  EXPECT_FALSE(controller.is_inactive(3));
}

TEST(LaneController, AFixedNumberStaysButForASlowOne) {
  std::mt19937_64 random(2);
  LaneController controller(8, true);
  Path path{.capacity = 100'000 * kMegabit, .of_a_lane = 100 * kMegabit, .slow_lane = 3};
  for (int interval = 0; interval < 40; ++interval) path.carry(controller, random);
  EXPECT_TRUE(controller.is_inactive(3));
  EXPECT_EQ(used(controller, protocol::kLanesMax), 8u)
      << "one that was open, and would have rested, takes its place";
  Path crowded{.capacity = 100 * kMegabit, .of_a_lane = 100 * kMegabit, .lanes = 8};
  LaneController all(8, true);
  for (int interval = 0; interval < 100; ++interval) {
    crowded.carry(all, random);
    EXPECT_EQ(used(all, 8), 8u);
  }
}

TEST(LaneController, LeavesOutASlowOneOfTheLast) {
  std::mt19937_64 random(4);
  LaneController controller(protocol::kLanesMax);
  Path path{.capacity = 100'000 * kMegabit, .of_a_lane = 100 * kMegabit, .slow_lane = 60};
  for (int interval = 0; interval < 10; ++interval) path.carry(controller, random);
  EXPECT_TRUE(controller.is_inactive(60));
  EXPECT_EQ(used(controller, protocol::kLanesMax), protocol::kLanesMax - 1);
}

// All lanes carry the same, but their total swings widely, and the path always has a queue.
TEST(LaneController, ChanceDoesNotTakeItsLanes) {
  double share = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> swing(0.6, 1.4);
    LaneController controller(20);
    std::vector<uint64_t> rates(protocol::kLanesMax, 0);
    uint64_t lanes_used = 0;
    for (int interval = 0; interval < 400; ++interval) {
      const auto rate = static_cast<uint64_t>(50e6 * swing(random));
      for (uint32_t lane = 0; lane < rates.size(); ++lane) {
        rates[lane] = controller.is_inactive(lane) ? 0 : rate;
        lanes_used += controller.is_inactive(lane) ? 0 : 1;
      }
      controller.interval(rates, {.queued = true});
    }
    share += static_cast<double>(lanes_used) / 400 / 20 / 50;
  }
  EXPECT_GT(share, 0.9) << "of what twenty carry";
}

TEST(LaneController, OneIsAlwaysInUse) {
  std::mt19937_64 random(7);
  for (uint32_t lanes = 1; lanes <= protocol::kLanesMax; ++lanes) {
    LaneController controller(lanes);
    Path wild{.capacity = 100 * kMegabit,
              .of_a_lane = 90 * kMegabit,
              .lanes = lanes,
              .slow_lane = lanes / 2,
              .noise = 0.95};
    for (int interval = 0; interval < 500; ++interval) wild.carry(controller, random);
  }
}

// Flows of others limit the link: more lanes carry no more, and nothing queues.
TEST(LaneController, TriesInVainEverMoreRarely) {
  std::mt19937_64 random(5);
  LaneController controller(4);
  int tried = 0;
  for (int interval = 0; interval < 1000; ++interval) {
    std::vector<uint64_t> rates(8, 0);
    for (uint32_t lane = 0; lane < 8; ++lane)
      rates[lane] = controller.is_inactive(lane) ? 0 : 100 * kMegabit / used(controller, 8);
    controller.interval(rates, {});
    tried += used(controller, 8) > 4 ? 1 : 0;
  }
  EXPECT_GT(tried, 10);
  EXPECT_LT(tried, 40);
  EXPECT_EQ(controller.wanted(), 4u);
}

// The number of lanes learned on one link is used for the next link to the same peer, until the
// network changes.
TEST(LaneController, FollowsANetworkThatChanges) {
  std::mt19937_64 random(3);
  LaneController controller(4);
  Path clean{.capacity = 1000 * kMegabit, .of_a_lane = 500 * kMegabit};
  Path lossy{.capacity = 1000 * kMegabit, .of_a_lane = 40 * kMegabit};
  for (int interval = 0; interval < 200; ++interval) clean.carry(controller, random);
  uint64_t last = 0;
  for (int interval = 0; interval < 600; ++interval) last = lossy.carry(controller, random);
  EXPECT_GT(last, 850 * kMegabit);
  EXPECT_GE(controller.wanted(), 22u);
  LaneController next(controller.wanted());
  lossy.carry(next, random);
  EXPECT_GT(lossy.carry(next, random), 850 * kMegabit);
}

}  // namespace
}  // namespace pccl::link
