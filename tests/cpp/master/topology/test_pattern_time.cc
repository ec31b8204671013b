#include "master/topology/pattern_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "csrc/protocol/shares.h"

namespace pccl::master::topology {
namespace {

using protocol::equal_shares;

constexpr double kMbit = 1e6 / 8, kMegabytes = 1e6;

Tour join_order(size_t members) {
  Tour order(members);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

double best_ring_seconds(const Network& network, double bytes) {
  Tour order = join_order(network.paths.members());
  double best = ring_seconds(network, order, bytes);
  while (std::next_permutation(order.begin() + 1, order.end()))
    best = std::min(best, ring_seconds(network, order, bytes));
  return best;
}

// Hosts with equal uplinks, and paths that limit nothing.
Network equal_hosts(size_t members, double mbit, double hop) {
  Paths paths(members);
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      paths.rate.at(from, to) = Network::kUnlimited;
      paths.hop.at(from, to) = hop;
    }
  }
  Network network(std::move(paths));
  std::fill(network.out.begin(), network.out.end(), mbit * kMbit);
  std::fill(network.in.begin(), network.in.end(), mbit * kMbit);
  return network;
}

TEST(PatternTime, EqualHostsDifferInTheHopsAlone) {
  const Network network = equal_hosts(8, 200, 0.01);
  const double by_rate = 1.75 * 80 * kMegabytes / (200 * kMbit);
  EXPECT_NEAR(ring_seconds(network, join_order(8), 80 * kMegabytes), by_rate + 15 * 0.01, 1e-6);
  EXPECT_NEAR(direct_seconds(network, equal_shares(8), 80 * kMegabytes), by_rate + 3 * 0.01, 1e-6);
}

TEST(PatternTime, ARingTakesThePlannersTimePlusTheLastWord) {
  Paths paths(4);
  for (uint32_t from = 0; from < 4; ++from) {
    for (uint32_t to = 0; to < 4; ++to) {
      paths.rate.at(from, to) = (20 + 10 * from + to) * kMbit;
      paths.hop.at(from, to) = 0.01 * (1 + to);
    }
  }
  const Tour order = {0, 2, 1, 3};
  const double planned = seconds(ring_of(paths, order), 16 * kMegabytes);
  EXPECT_NEAR(ring_seconds(Network(paths), order, 16 * kMegabytes), planned + 0.04, 1e-9);
}

// A home with a slow uplink sends its tensor once, where a ring makes it send 1.5.
TEST(PatternTime, AHostWithASlowUplinkOwnsNothing) {
  Network network = equal_hosts(4, 400, 0.02);
  network.out[2] = 60 * kMbit;
  network.in[2] = 250 * kMbit;
  const double bytes = 16 << 20, ring = best_ring_seconds(network, bytes);
  EXPECT_GT(ring / direct_seconds(network, {86, 85, 0, 85}, bytes), 1.4);
  EXPECT_NEAR(ring / direct_seconds(network, equal_shares(4), bytes), 1.0, 0.1);
}

// Members on both sides of an ocean share a trunk. The ring crosses it once in each direction, and
// the direct pattern with the bytes of all 16 pairs.
TEST(PatternTime, ASharedTrunkIsForTheRing) {
  Network network = equal_hosts(8, 280, 0.04);
  const std::vector<bool> east = {true, true, true, true, false, false, false, false};
  std::vector<bool> west = east;
  west.flip();
  network.trunks = {{east, west, 200 * kMbit}, {west, east, 200 * kMbit}};
  const double bytes = 64 * kMegabytes;
  EXPECT_GT(direct_seconds(network, equal_shares(8), bytes),
            1.5 * best_ring_seconds(network, bytes));
}

}  // namespace
}  // namespace pccl::master::topology
