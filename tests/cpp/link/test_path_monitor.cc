#include "csrc/link/path_monitor.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace pccl::link {
namespace {

using std::chrono::milliseconds;

constexpr Duration kOcean = milliseconds(90);
constexpr Duration kTurn = milliseconds(10);

struct FakeLane : Carrier {
  bool idle() const override { return is_idle; }
  PathInfo path() const override {
    return {.smoothed = smoothed,
            .least = kOcean,
            .segments = static_cast<uint32_t>(sent >> 10),
            .segments_again = lost,
            .segments_arrived = arrived,
            .segment_bytes = 1024,
            .window = window,
            .busy = busy,
            .held = held};
  }
  uint64_t buffers() const override { return 1 << 20; }

  bool is_idle = false;
  bool is_carrying = true;  // false: all that it sends stays in the system's buffers
  uint64_t sent = 0;
  uint32_t arrived = UINT32_MAX - 5000;  // wraps around soon
  Duration smoothed = kOcean;
  uint32_t lost = 0;
  uint64_t window = 256 << 10;
  Duration busy{0}, held{0};
  int held_percent = 0;  // percent of the busy time in which the buffer limits the lane
};

struct Link {
  explicit Link(uint32_t count, uint32_t first = 4) : lanes(count), traffic(kOcean, first) {
    for (FakeLane& lane : lanes) traffic.add(lane);
  }
  int used() const { return static_cast<int>(lanes.size()) - std::popcount(traffic.inactive()); }
  // Every active lane sends one chunk per turn. Returns the number of intervals that ended.
  int carry(Duration time, uint64_t bytes = 1 << 20) {
    int intervals = 0;
    for (const Instant until = now + time; now < until; now = now + kTurn) {
      for (size_t index = 0; index < lanes.size(); ++index) {
        if (((traffic.inactive() >> index) & 1) != 0) continue;
        lanes[index].sent += bytes;
        lanes[index].busy += kTurn;
        lanes[index].held += kTurn * lanes[index].held_percent / 100;
        if (lanes[index].is_carrying) lanes[index].arrived += static_cast<uint32_t>(bytes >> 10);
        intervals += traffic.chunk_sent(lanes[index], now) ? 1 : 0;
        traffic.check();
      }
    }
    return intervals;
  }

  std::vector<FakeLane> lanes;
  PathMonitor traffic;
  Instant now{};
};

TEST(PathMonitor, CountsIntervalsOfAFewRoundTrips) {
  Link link(8);
  EXPECT_EQ(link.used(), 4);
  EXPECT_EQ(link.carry(4 * kOcean), 0) << "in the first one lanes find their speed";
  EXPECT_EQ(link.carry(8 * kOcean + 4 * kTurn), 2);
}

TEST(PathMonitor, ALaneWithNothingToSendEndsTheInterval) {
  Link link(4);
  link.carry(7 * kOcean);
  link.lanes[1].is_idle = true;
  EXPECT_FALSE(link.traffic.chunk_sent(link.lanes[1], link.now));
  link.lanes[1].is_idle = false;
  EXPECT_EQ(link.carry(7 * kOcean), 0);
  EXPECT_GE(link.carry(3 * kOcean), 1);
}

TEST(PathMonitor, ALaneThatRestsDoesNotCount) {
  Link link(8);
  for (size_t index = 4; index < 8; ++index) link.lanes[index].is_idle = true;
  EXPECT_GE(link.carry(12 * kOcean), 1);
  EXPECT_FALSE(link.traffic.chunk_sent(link.lanes[7], link.now));
}

TEST(PathMonitor, UsesMoreLanesWhereNothingQueues) {
  Link link(16);
  link.carry(80 * kOcean);  // each further lane carries as much as the others
  EXPECT_GT(link.used(), 8);
  EXPECT_GT(link.traffic.lanes_wanted(), 4u);
}

TEST(PathMonitor, CountsWhatArrivesNotWhatTheSystemTakes) {
  Link link(4);
  link.lanes[2].is_carrying = false;
  link.carry(20 * kOcean);
  EXPECT_EQ(link.traffic.inactive(), 0b100u);
}

TEST(PathMonitor, WaitsWhereMuchIsLost) {
  for (const bool much : {false, true}) {
    Link link(16);
    link.carry(5 * kOcean);
    link.lanes[0].lost += much ? 200 : 20;  // segments; 36 turns * 4 lanes * 1024 were sent
    link.carry(5 * kOcean);
    EXPECT_EQ(link.used(), much ? 4 : 8);
  }
}

TEST(PathMonitor, UsesNoMoreWhereSomethingQueues) {
  Link link(16);
  for (FakeLane& lane : link.lanes) lane.smoothed = 2 * kOcean;
  link.carry(20 * kOcean);
  EXPECT_LE(link.used(), 4);
}

// A link that does not limit the ring has idle lanes now and then. No interval counts then, but a
// deep queue does.
struct Idleness {
  const char* name;
  int rtt;    // smoothed RTT, in multiples of kOcean
  int pause;  // time until lanes have something to send again, in multiples of kOcean
  int used;   // active lanes after six pauses
  uint64_t window = 256 << 10;
};

class PathMonitorWithIdleLanes : public testing::TestWithParam<Idleness> {};

TEST_P(PathMonitorWithIdleLanes, HalvesThemInADeepQueue) {
  Link link(16, 16);
  for (FakeLane& lane : link.lanes) {
    lane.smoothed = GetParam().rtt * kOcean;
    lane.window = GetParam().window;
  }
  for (int pause = 0; pause < 6; ++pause) {
    link.carry(2 * kOcean);
    link.lanes[0].is_idle = true;
    link.traffic.chunk_sent(link.lanes[0], link.now);
    link.lanes[0].is_idle = false;
    link.now = link.now + GetParam().pause * kOcean;
  }
  EXPECT_EQ(link.used(), GetParam().used);
}

INSTANTIATE_TEST_SUITE_P(
    , PathMonitorWithIdleLanes,
    testing::Values(Idleness{"NowAndThen", 4, 2, 8}, Idleness{"AtTheEndOfCalls", 4, 20, 16},
                    Idleness{"WithoutADeepQueue", 2, 2, 16},
                    Idleness{"WithBuffersTooSmallForMore", 4, 2, 16, 768 << 10}),
    [](const auto& one) { return one.param.name; });

// Calls are short, and lanes are idle after each call. No interval counts, but the busy time does.
struct Holding {
  const char* name;
  int held_percent;
  int queue_percent;  // queueing delay, in percent of kOcean
  int round_trips;    // length of each of the four calls, in round trips
  int used;
};

class PathMonitorHeldByBuffers : public testing::TestWithParam<Holding> {};

TEST_P(PathMonitorHeldByBuffers, UsesTwiceAsMany) {
  Link link(16);
  for (FakeLane& lane : link.lanes) {
    lane.held_percent = GetParam().held_percent;
    lane.smoothed = kOcean + kOcean * GetParam().queue_percent / 100;
  }
  for (int call = 0; call < 4; ++call) {
    link.carry(GetParam().round_trips * kOcean);
    link.lanes[0].is_idle = true;
    link.traffic.chunk_sent(link.lanes[0], link.now);
    link.lanes[0].is_idle = false;
    link.now = link.now + 20 * kOcean;
  }
  EXPECT_EQ(link.used(), GetParam().used);
}

INSTANTIATE_TEST_SUITE_P(, PathMonitorHeldByBuffers,
                         testing::Values(Holding{"MostOfTheTime", 60, 20, 2, 8},
                                         Holding{"AtTimes", 40, 20, 2, 4},
                                         Holding{"InAQueue", 60, 30, 2, 4},
                                         Holding{"NotForLongEnough", 60, 20, 1, 4}),
                         [](const auto& one) { return one.param.name; });

TEST(PathMonitor, CountsIntervalsWhereBuffersHoldAllThatThereAre) {
  Link link(4);
  for (FakeLane& lane : link.lanes) lane.held_percent = 100;
  link.carry(4 * kOcean);
  EXPECT_EQ(link.carry(8 * kOcean + 4 * kTurn), 2);
}

// ---- The rate ----

constexpr uint64_t kMiB = 1 << 20;

TEST(PathMonitor, KnowsTheRateAfterAFewIntervals) {
  Link link(4);
  link.carry(12 * kOcean);
  EXPECT_EQ(link.traffic.rate(), 0u) << "not of two intervals";
  link.carry(8 * kOcean);
  const double expected = 4.0 * kMiB * 100;  // each of four lanes sends one MiB in 10 ms
  EXPECT_NEAR(static_cast<double>(link.traffic.rate()), expected, expected / 20);
}

TEST(PathMonitor, ARateIsThatOfMostIntervals) {
  Link link(4);
  link.carry(24 * kOcean);
  const uint64_t before = link.traffic.rate();
  link.carry(4 * kOcean + kTurn, kMiB / 8);
  EXPECT_NEAR(static_cast<double>(link.traffic.rate()), static_cast<double>(before), before / 20.0);
  link.carry(12 * kOcean, kMiB / 8);
  EXPECT_LT(link.traffic.rate(), before / 4);
}

TEST(PathMonitor, LittleHasToWaitInABuffer) {
  Link link(4);
  link.carry(12 * kOcean);
  EXPECT_EQ(link.traffic.unsent_max(), 0u) << "the rate is not known";
  link.carry(8 * kOcean);
  const double expected = kMiB * 2;  // each lane sends one MiB in 10 ms, and 20 ms are enough
  EXPECT_NEAR(static_cast<double>(link.traffic.unsent_max()), expected, expected / 20);
  const uint64_t before = link.traffic.unsent_max();
  link.carry(40 * kOcean, kMiB / 8);
  EXPECT_LT(link.traffic.rate(), uint64_t{100} * kMiB);
  EXPECT_GE(link.traffic.unsent_max(), before) << "the limit may be what has slowed it down";
}

TEST(PathMonitor, SomethingMayAlwaysWaitInABuffer) {
  Link link(4);
  link.carry(20 * kOcean, 1024);
  EXPECT_EQ(link.traffic.unsent_max(), 16u << 10);
}

TEST(PathMonitor, ALaneWithNothingToSendShowsNoRate) {
  Link link(4);
  for (int round = 0; round < 20; ++round) {
    link.carry(6 * kOcean);
    link.lanes[1].is_idle = true;
    link.traffic.chunk_sent(link.lanes[1], link.now);
    link.lanes[1].is_idle = false;
  }
  EXPECT_EQ(link.traffic.rate(), 0u);
}

TEST(PathMonitor, ALinkThatBuffersLimitShowsNoRate) {
  for (const int held_percent : {40, 60}) {
    Link link(4);
    for (FakeLane& lane : link.lanes) lane.held_percent = held_percent;
    link.carry(40 * kOcean);
    EXPECT_EQ(link.traffic.rate() > 0, held_percent < 50);
  }
}

}  // namespace
}  // namespace pccl::link
