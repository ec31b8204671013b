#include "csrc/ring/link_traffic.h"

#include <gtest/gtest.h>

#include <bit>
#include <optional>
#include <vector>

namespace pccl::ring {
namespace {

using std::chrono::milliseconds;

constexpr Duration kOcean = milliseconds(90);
constexpr Duration kTurn = milliseconds(10);

struct FakeLane : Carrier {
  bool idle() const override { return is_idle; }
  uint64_t bytes_sent() const override { return sent; }
  net::Socket::RoundTrip round_trip() const override { return {smoothed, kOcean}; }
  uint64_t bytes_received() const override { return received; }
  void pace(uint64_t bytes_per_second) override { paced_at = bytes_per_second; }

  bool is_idle = false;
  uint64_t sent = 0, received = 0;
  Duration smoothed = kOcean;
  std::optional<uint64_t> paced_at;
};

struct Link {
  explicit Link(uint32_t count, LinkTraffic::Learnt first = {4, {}}, bool fixed = false)
      : lanes(count), traffic(kOcean, first, fixed) {
    for (FakeLane& lane : lanes) traffic.add(lane);
  }
  // Every lane sends a chunk each turn; returns how often a window was over.
  int carry(Duration time, uint64_t bytes = 1 << 20) {
    int windows = 0;
    for (const Instant until = now + time; now < until; now = now + kTurn) {
      for (size_t index = 0; index < lanes.size(); ++index) {
        if (((traffic.resting() >> index) & 1) != 0) continue;
        lanes[index].sent += bytes;
        windows += traffic.chunk_sent(lanes[index], now) ? 1 : 0;
      }
    }
    return windows;
  }

  std::vector<FakeLane> lanes;
  LinkTraffic traffic;
  Instant now{};
};

TEST(LinkTraffic, CountsWindowsOfAFewRoundTrips) {
  Link link(8);
  EXPECT_EQ(std::popcount(link.traffic.resting()), 4);
  EXPECT_EQ(link.carry(4 * kOcean), 0) << "in the first one lanes find their speed";
  EXPECT_EQ(link.carry(8 * kOcean + 4 * kTurn), 2);
}

TEST(LinkTraffic, ALaneWithNothingToSendEndsTheWindow) {
  Link link(4);
  link.carry(7 * kOcean);
  link.lanes[1].is_idle = true;
  EXPECT_FALSE(link.traffic.chunk_sent(link.lanes[1], link.now));
  link.lanes[1].is_idle = false;
  EXPECT_EQ(link.carry(7 * kOcean), 0);
  EXPECT_GE(link.carry(3 * kOcean), 1);
}

TEST(LinkTraffic, ALaneThatRestsDoesNotCount) {
  Link link(8);
  for (size_t index = 4; index < 8; ++index) link.lanes[index].is_idle = true;
  EXPECT_GE(link.carry(12 * kOcean), 1);
  EXPECT_FALSE(link.traffic.chunk_sent(link.lanes[7], link.now));
}

TEST(LinkTraffic, PacesAllLanesTogetherOnceSomethingQueues) {
  Link link(4);
  link.carry(20 * kOcean);
  for (const FakeLane& lane : link.lanes) EXPECT_FALSE(lane.paced_at);
  for (FakeLane& lane : link.lanes) lane.smoothed = 2 * kOcean;
  link.carry(kOcean + 2 * kTurn);                   // soon: they may be doubling their speed
  const uint64_t each = (uint64_t{1} << 20) * 100;  // what a lane carries in a second
  for (const FakeLane& lane : link.lanes) {
    EXPECT_GT(lane.paced_at, each * 85 / 100);
    EXPECT_LT(lane.paced_at, each * 21 / 20);
  }
  EXPECT_NEAR(static_cast<double>(link.traffic.learnt().pacer.limit()), 4.0 * each * 0.94, each);
}

// Both directions lose where data of one delays the acknowledgements of the other.
TEST(LinkTraffic, AQueueOfWhatComesIsNotOurs) {
  Link link(4);
  link.carry(20 * kOcean);
  for (FakeLane& lane : link.lanes) lane.smoothed = 2 * kOcean;
  link.carry(kOcean + 2 * kTurn);
  const auto both_ways = [&] {
    for (int turn = 0; turn < 100; ++turn) {
      link.lanes[0].received += 5 << 20;
      link.carry(kTurn);
    }
  };
  both_ways();
  const uint64_t before = link.traffic.learnt().pacer.limit();
  both_ways();
  EXPECT_EQ(link.traffic.learnt().pacer.limit(), before);
}

TEST(LinkTraffic, ALaneThatComesLaterSharesThePace) {
  Link link(4, {8, {}});
  for (FakeLane& lane : link.lanes) lane.smoothed = 2 * kOcean;
  link.carry(9 * kOcean);
  FakeLane fifth;
  link.traffic.add(fifth);
  for (FakeLane& lane : link.lanes) lane.smoothed = kOcean;
  link.carry(9 * kOcean);
  ASSERT_TRUE(fifth.paced_at);
  EXPECT_EQ(fifth.paced_at, link.lanes[0].paced_at);
  EXPECT_LT(*fifth.paced_at, (uint64_t{1} << 20) * 90);
}

TEST(LinkTraffic, FixedLanesAllCarry) {
  Link link(8, {2, {}}, true);
  EXPECT_EQ(link.traffic.resting(), 0u);
  for (FakeLane& lane : link.lanes) lane.smoothed = 2 * kOcean;
  link.carry(20 * kOcean);
  EXPECT_EQ(link.traffic.resting(), 0u);
  EXPECT_GT(link.lanes[0].paced_at, 0u);
}

}  // namespace
}  // namespace pccl::ring
