#include "csrc/ring/flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

namespace pccl::ring {
namespace {

using std::chrono::milliseconds;

constexpr Duration kOcean = milliseconds(90);
constexpr Duration kStep = milliseconds(1);
constexpr double kMegabit = 125'000;
constexpr uint64_t kMebi = 1 << 20;

// A way with a queue, and a sender that always has as much under way as it is allowed to, or as its
// connections let it.
struct Way {
  explicit Way(double mbit, Duration way = kOcean, Duration look = milliseconds(5))
      : bytes_per_second(mbit * kMegabit), there_and_back(way), look_every(look), flight(way) {}

  double bytes_per_second;
  Duration there_and_back, look_every;
  double queue_bytes = 0.55 * full();
  double of_connections = 1e12;

  Flight flight;
  Instant now{};
  struct Acknowledgement {
    double carried, lost;
  };
  std::deque<Acknowledgement> acknowledgements;  // on their way: one of each step
  double allowed = 4e6, under_way = 0, acknowledged = 0, queue = 0, lost = 0;
  bool held = false;

  void run(Duration time) {
    for (const Instant until = now + time; now < until; now = now + kStep) {
      const double trips = std::min(40.0, to_seconds(now - Instant{}) / to_seconds(there_and_back));
      const double wanted = std::min(of_connections, 350e3 * std::exp2(trips)) - under_way;
      held |= allowed < wanted;
      const double sent = std::max(0.0, std::min(allowed, wanted));
      allowed -= sent;
      under_way += sent;
      queue += sent;
      const double overflow = std::max(0.0, queue - queue_bytes - per_step());
      lost += overflow;
      queue -= overflow;
      const double carried = std::min(queue, per_step());
      queue -= carried;
      acknowledgements.push_back({carried, overflow});
      if (acknowledgements.size() > static_cast<size_t>(there_and_back / kStep)) {
        under_way -= acknowledgements.front().carried + acknowledgements.front().lost;
        acknowledged += acknowledgements.front().carried;
        acknowledgements.pop_front();
      }
      if ((now - Instant{}) % look_every == Duration{0}) look();
    }
  }
  void look() {
    flight.look({now, static_cast<uint64_t>(acknowledged), static_cast<uint64_t>(under_way),
                 round_trip(), std::exchange(held, false)});
    allowed = std::max(0.0, static_cast<double>(flight.window()) - under_way);
  }
  double carried_in(Duration time) {
    const double before = acknowledged;
    run(time);
    return (acknowledged - before) / (bytes_per_second * to_seconds(time));
  }
  double per_step() const { return bytes_per_second * to_seconds(kStep); }
  double full() const { return bytes_per_second * to_seconds(there_and_back); }
  Duration round_trip() const {
    return there_and_back +
           std::chrono::microseconds(static_cast<int64_t>(1e6 * queue / bytes_per_second));
  }
};

TEST(Flight, BeginsWithWhatAnyWayBears) {
  const Flight flight(kOcean);
  EXPECT_EQ(flight.window(), 4 * kMebi);
}

TEST(Flight, FillsTheWayAndNotItsQueue) {
  for (const double mbit : {500.0, 1500.0, 10'000.0}) {
    Way way(mbit);
    way.run(milliseconds(2500));
    EXPECT_EQ(way.lost, 0) << mbit;
    EXPECT_GT(way.carried_in(milliseconds(1000)), 0.98);
    EXPECT_LT(way.queue, 0.35 * way.full());
  }
}

// Its own queue is never taken for the way.
TEST(Flight, DoesSoForMinutes) {
  Way way(1500);
  way.run(milliseconds(2500));
  for (int turn = 0; turn < 120; ++turn) {
    EXPECT_GT(way.carried_in(std::chrono::seconds(1)), 0.95);
    ASSERT_LT(way.queue, 0.35 * way.full()) << turn;
  }
  EXPECT_EQ(way.lost, 0);
}

TEST(Flight, FillsAShortWayThoughLooksAreRare) {
  for (const auto& [way_ms, look_ms] : {std::pair{2, 3}, std::pair{5, 4}, std::pair{20, 10}}) {
    Way way(20'000, milliseconds(way_ms), milliseconds(look_ms));
    way.queue_bytes = 1e9;
    way.run(milliseconds(2500));
    EXPECT_GT(way.carried_in(milliseconds(1000)), 0.95) << way_ms;
  }
}

TEST(Flight, GrowsSlowerThanConnectionsDo) {
  Way way(10'000);
  way.run(7 * kOcean);
  const auto before = static_cast<double>(way.flight.window());
  way.run(3 * kOcean);
  const double growth = static_cast<double>(way.flight.window()) / before;
  EXPECT_GT(growth, std::pow(1.25, 3));
  EXPECT_LT(growth, std::pow(1.55, 3));
}

TEST(Flight, WaitsForNobodyWhereConnectionsSetThePace) {
  Way way(1500);
  way.of_connections = 8e6;
  way.run(milliseconds(3000));
  EXPECT_GT(static_cast<double>(way.flight.window()), 1.2 * 8e6);
}

TEST(Flight, KnowsTheWayAfterAnyPause) {
  Way way(1500);
  way.run(milliseconds(2500));
  const uint64_t found = way.flight.window();
  way.now = way.now + std::chrono::minutes(10);
  way.acknowledgements.clear();
  way.under_way = way.queue = 0;
  way.look();
  EXPECT_GT(way.flight.window(), found * 9 / 10);
  way.run(milliseconds(300));
  EXPECT_GT(way.flight.window(), found * 9 / 10);
}

TEST(Flight, FollowsAWayThatBecomesWiderOrNarrower) {
  Way way(500);
  way.run(milliseconds(2500));
  way.bytes_per_second *= 3;
  way.run(milliseconds(2500));
  EXPECT_GT(way.carried_in(milliseconds(1000)), 0.95) << "it looks how long the way is meanwhile";
  way.bytes_per_second /= 3;
  way.queue_bytes = 1e9;
  way.run(std::chrono::seconds(12));
  EXPECT_LT(static_cast<double>(way.flight.window()), 1.6 * way.full());
}

// What was enough fills half of it.
TEST(Flight, FollowsAWayThatBecomesLonger) {
  Way way(1500);
  way.run(milliseconds(2500));
  way.there_and_back = 2 * kOcean;
  way.run(std::chrono::seconds(20));
  EXPECT_GT(way.carried_in(std::chrono::seconds(1)), 0.95);
}

// A single look at a long round trip, or a few of them with little under way, are no queue.
TEST(Flight, OneLateAcknowledgementIsNoQueue) {
  Way late(10'000), way(10'000);
  for (Way* one : {&late, &way}) one->run(7 * kOcean);
  late.flight.look({late.now, static_cast<uint64_t>(late.acknowledged),
                    static_cast<uint64_t>(late.under_way), 2 * kOcean, true});
  for (Way* one : {&late, &way}) one->run(3 * kOcean);
  EXPECT_GT(static_cast<double>(late.flight.window()),
            0.9 * static_cast<double>(way.flight.window()));
}

}  // namespace
}  // namespace pccl::ring
