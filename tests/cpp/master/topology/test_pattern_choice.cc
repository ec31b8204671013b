#include "master/topology/pattern_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "csrc/protocol/shares.h"

namespace pccl::master::topology {
namespace {

using protocol::equal_shares;

constexpr double kMegabyte = 1e6;

// Paths of random rates and delays: some worlds are for the ring, some for the direct pattern, and
// some for each of them by size.
Network some_network(uint32_t members, std::mt19937_64& random) {
  Paths paths(members);
  const bool far = random() % 2 == 0;
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      paths.rate.at(from, to) = kMegabyte * static_cast<double>(1 + random() % 100);
      // The way around may be short, while one pair is far apart.
      const bool next = from + 1 == to || (to == 0 && from + 1 == members);
      paths.hop.at(from, to) = far && !next ? 0.3 : 0.001 * static_cast<double>(1 + random() % 40);
    }
  }
  return Network(std::move(paths));
}

TEST(PatternChoice, HasTheSizesForWhichThePredictedTimeIsLess) {
  std::mt19937_64 random(1);
  size_t all = 0, none = 0, small = 0, large = 0;
  for (int world = 0; world < 2000; ++world) {
    const auto members = static_cast<uint32_t>(3 + random() % 4);
    const Network network = some_network(members, random);
    Tour order(members);
    for (uint32_t rank = 0; rank < members; ++rank) order[rank] = rank;
    const auto shares = equal_shares(members);
    const auto sizes = direct_sizes(network, order, shares);
    if (!sizes) ++none;
    if (sizes == protocol::DirectSizes{}) ++all;
    if (sizes && sizes->from > 0) ++large;
    if (sizes && sizes->from == 0 && *sizes != protocol::DirectSizes{}) ++small;
    for (uint64_t bytes = 1000; bytes < 100'000'000'000; bytes *= 3) {
      const auto size = static_cast<double>(bytes);
      const bool faster = direct_excess(members) * direct_seconds(network, shares, size) <
                          ring_seconds(network, order, size);
      EXPECT_EQ(sizes && sizes->contain(bytes), faster) << world << ", " << bytes << " bytes";
    }
  }
  EXPECT_GT(std::min({all, none, small, large}), 20u)
      << all << " " << none << " " << small << " " << large;
}

TEST(PatternChoice, ATieIsForTheRing) {
  Paths paths(3);
  for (uint32_t from = 0; from < 3; ++from) {
    for (uint32_t to = 0; to < 3; ++to) paths.rate.at(from, to) = Network::kUnlimited;
  }
  EXPECT_FALSE(direct_sizes(Network(paths), {0, 1, 2}, equal_shares(3)).has_value());
}

// The ring crosses the ocean once in each direction, the direct pattern with the bytes of all
// pairs. With all rates and the trunk known, only small all-reduces are direct.
TEST(PatternChoice, ASharedTrunkIsForTheRing) {
  Paths paths(8);
  for (uint32_t from = 0; from < 8; ++from) {
    for (uint32_t to = 0; to < 8; ++to) {
      paths.rate.at(from, to) = 12.5 * kMegabyte;
      paths.hop.at(from, to) = 0.04;
    }
  }
  Network network(paths);
  std::fill(network.out.begin(), network.out.end(), 35 * kMegabyte);
  std::fill(network.in.begin(), network.in.end(), 35 * kMegabyte);
  const std::vector<bool> east = {true, true, true, true, false, false, false, false};
  std::vector<bool> west = east;
  west.flip();
  const Tour order = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_TRUE(direct_sizes(network, order, equal_shares(8))->contain(64'000'000)) << "no trunk";
  network.trunks = {{east, west, 12.5 * kMegabyte}, {west, east, 12.5 * kMegabyte}};
  const auto sizes = direct_sizes(network, order, equal_shares(8));
  ASSERT_TRUE(sizes.has_value());
  EXPECT_FALSE(sizes->contain(64'000'000));
  EXPECT_TRUE(sizes->contain(100'000));
}

}  // namespace
}  // namespace pccl::master::topology
