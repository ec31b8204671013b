#include "csrc/ring/flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>

namespace pccl::ring {
namespace {

using std::chrono::milliseconds;

constexpr Duration kOcean = milliseconds(90);
constexpr Duration kLook = milliseconds(5);
constexpr double kMegabit = 125'000;
constexpr uint64_t kMebi = 1 << 20;

// A way with a queue, and a sender that always has as much under way as it is allowed to, or as its
// connections let it. Bytes move in steps of a look.
struct Way {
  explicit Way(double mbit) : bytes_per_second(mbit * kMegabit) {}

  double bytes_per_second;
  Duration there_and_back = kOcean;
  double queue_bytes = 0.05 * bytes_per_second;
  double of_connections = 1e12;

  Flight flight{kOcean};
  Instant now{};
  std::deque<double> acknowledgements;  // on their way: one of each look
  double under_way = 0, acknowledged = 0, queue = 0, lost = 0;

  void run(Duration time) {
    for (const Instant until = now + time; now < until; now = now + kLook) {
      const double allowed = static_cast<double>(flight.window());
      const double slow_start = 350e3 * std::exp2(to_seconds(now - Instant{}) / to_seconds(kOcean));
      const double wanted = std::min(of_connections, slow_start);
      const bool held = allowed < wanted;
      const double sent = std::max(0.0, std::min(allowed, wanted) - under_way);
      under_way += sent;
      queue += sent;
      const double overflow = std::max(0.0, queue - queue_bytes - per_look());
      lost += overflow;
      queue -= overflow;
      const double carried = std::min(queue, per_look());
      queue -= carried;
      acknowledgements.push_back(carried + overflow);  // what is lost is sent again, and comes
      if (acknowledgements.size() > static_cast<size_t>(there_and_back / kLook)) {
        under_way -= acknowledgements.front();
        acknowledged += acknowledgements.front();
        acknowledgements.pop_front();
      }
      flight.look(now, static_cast<uint64_t>(acknowledged), round_trip(), held);
    }
  }
  double per_look() const { return bytes_per_second * to_seconds(kLook); }
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
    const double before = way.acknowledged;
    way.run(milliseconds(1000));
    EXPECT_GT(way.acknowledged - before, 0.98 * way.bytes_per_second);
    EXPECT_LT(way.queue, 0.3 * way.full());
  }
}

TEST(Flight, GrowsSlowerThanConnectionsDo) {
  Way way(10'000);
  way.run(7 * kOcean);
  const auto before = static_cast<double>(way.flight.window());
  way.run(3 * kOcean);
  const double growth = static_cast<double>(way.flight.window()) / before;
  EXPECT_GT(growth, std::pow(1.25, 3));
  EXPECT_LT(growth, std::pow(1.5, 3));
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
  way.run(milliseconds(100));
  way.now = way.now + std::chrono::minutes(10);
  way.acknowledgements.clear();
  way.under_way = way.queue = 0;
  way.flight.look(way.now, static_cast<uint64_t>(way.acknowledged), kOcean, false);
  EXPECT_GT(way.flight.window(), found * 9 / 10);
  way.run(milliseconds(300));
  EXPECT_GT(way.flight.window(), found * 9 / 10);
}

TEST(Flight, FollowsAWayThatBecomesWiderOrNarrower) {
  Way way(500);
  way.run(milliseconds(2500));
  way.bytes_per_second = 1500 * kMegabit;
  way.run(milliseconds(2500));
  EXPECT_GT(static_cast<double>(way.flight.window()), 1.1 * way.full());
  way.bytes_per_second = 500 * kMegabit;
  way.queue_bytes = 1e9;
  way.run(std::chrono::seconds(4));
  EXPECT_LT(static_cast<double>(way.flight.window()), 1.6 * way.full());
}

// The way is another, twice as long: what was enough fills half of it.
TEST(Flight, FollowsAWayThatBecomesLonger) {
  Way way(1500);
  way.run(milliseconds(2500));
  way.there_and_back = 2 * kOcean;
  way.run(std::chrono::seconds(20));
  EXPECT_GT(static_cast<double>(way.flight.window()), 1.1 * way.full());
  const double before = way.acknowledged;
  way.run(std::chrono::seconds(1));
  EXPECT_GT(way.acknowledged - before, 0.95 * way.bytes_per_second);
}

TEST(Flight, MeasuresShortWays) {
  Flight flight(milliseconds(1));
  uint64_t acknowledged = 0;
  Instant now{};
  for (int look = 0; look < 500; ++look) {
    flight.look(now, acknowledged += 20 * kMebi, milliseconds(1), true);
    now = now + milliseconds(2);
  }
  EXPECT_GT(flight.window(), 10 * kMebi) << "10 GiB/s, 1 ms";
  EXPECT_LT(flight.window(), 16 * kMebi);
}

}  // namespace
}  // namespace pccl::ring
