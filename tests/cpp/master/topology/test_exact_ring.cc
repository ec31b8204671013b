#include "master/topology/exact_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace pccl::master::topology {
namespace {

Paths small_world(std::mt19937& random, size_t members) {
  std::uniform_int_distribution<int> number(1, 40);
  Paths paths(members);
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      paths.rate.at(from, to) = number(random);
      paths.hop.at(from, to) = number(random);
    }
  }
  return paths;
}

// The least sum of hops of the rings that have this rate, or 0.
double least_hops(const Paths& paths, double rate) {
  Tour order(paths.members());
  std::iota(order.begin(), order.end(), 0);
  double best = 0;
  do {
    const Ring ring = ring_of(paths, order);
    if (ring.slowest < rate) continue;
    if (best == 0 || ring.hop_seconds < best) best = ring.hop_seconds;
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

TEST(ExactRing, AgreesWithAllOrders) {
  std::mt19937 random(1);
  for (size_t members = 2; members <= 7; ++members) {
    for (int round = 0; round < 10; ++round) {
      const Paths paths = small_world(random, members);
      const ExactRing exact(paths);
      ASSERT_TRUE(std::is_sorted(exact.rates().rbegin(), exact.rates().rend()));
      for (const double rate : exact.rates()) {
        const double best = least_hops(paths, rate);
        ASSERT_EQ(exact.exists(rate), best > 0);
        const auto ring = exact.shortest(rate);
        ASSERT_EQ(ring.has_value(), best > 0);
        if (!ring) continue;
        ASSERT_GE(ring->slowest, rate);
        ASSERT_DOUBLE_EQ(ring->hop_seconds, best);
      }
    }
  }
}

TEST(ExactRing, NoRingIsFasterThanEveryPath) {
  std::mt19937 random(2);
  const Paths paths = small_world(random, 5);
  const ExactRing exact(paths);
  EXPECT_FALSE(exact.exists(41));
}

}  // namespace
}  // namespace pccl::master::topology
