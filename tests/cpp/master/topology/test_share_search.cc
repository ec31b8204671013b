#include "master/topology/share_search.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "csrc/protocol/limits.h"
#include "csrc/protocol/shares.h"

namespace pccl::master::topology {
namespace {

constexpr double kMegabit = 1e6 / 8, kLarge = 1e12;

Network hosts(const std::vector<double>& out, const std::vector<double>& in) {
  Paths paths(out.size());
  for (uint32_t from = 0; from < out.size(); ++from) {
    for (uint32_t to = 0; to < out.size(); ++to)
      paths.rate.at(from, to) = std::min(out[from], in[to]) * kMegabit;
  }
  Network network(std::move(paths));
  for (uint32_t host = 0; host < out.size(); ++host) {
    network.out[host] = out[host] * kMegabit;
    network.in[host] = in[host] * kMegabit;
  }
  return network;
}

double of_equal(const Network& network) {
  return direct_seconds(network, protocol::equal_shares(network.paths.members()), kLarge);
}

TEST(ShareSearch, EqualHostsHaveEqualShares) {
  for (const size_t members : {2, 3, 5, 8}) {
    const std::vector<double> rates(members, 100);
    EXPECT_EQ(fastest_shares(hosts(rates, rates)), protocol::equal_shares(members));
  }
}

// A home uplink limits a ring by 2(N-1)/N of the tensor. With a share of 0 it sends the tensor
// once.
TEST(ShareSearch, ASlowHomeUplinkHasNoShare) {
  const Network network = hosts({1000, 1000, 1000, 60}, {1000, 1000, 1000, 250});
  const auto shares = fastest_shares(network);
  EXPECT_LE(shares[3], 1);
  EXPECT_TRUE(protocol::are_shares(shares, 4));
  EXPECT_NEAR(of_equal(network) / direct_seconds(network, shares, kLarge), 1.5, 0.02);
}

TEST(ShareSearch, AllOfManyMembersAreServed) {
  const std::vector<double> rates(128, 100);
  EXPECT_TRUE(protocol::are_shares(fastest_shares(hosts(rates, rates)), 128));
}

TEST(ShareSearch, AMemberBehindASlowTrunkHasNoShare) {
  Network network = hosts({100, 100, 100}, {100, 100, 100});
  network.trunks.push_back({{true, false, false}, {false, true, true}, 30 * kMegabit});
  network.trunks.push_back({{false, true, true}, {true, false, false}, 30 * kMegabit});
  const auto shares = fastest_shares(network);
  EXPECT_TRUE(protocol::are_shares(shares, 3));
  EXPECT_LE(direct_seconds(network, shares, kLarge), of_equal(network));
}

// All shares in steps of a sixteenth, for three and four members.
double best_of_all(const Network& network) {
  constexpr uint16_t kStep = protocol::kSharesTotal / 16;
  std::vector<uint16_t> shares(network.paths.members());
  double best = std::numeric_limits<double>::infinity();
  const std::function<void(size_t, uint16_t)> choose = [&](size_t member, uint16_t left) {
    if (member + 1 == shares.size()) {
      shares[member] = left;
      best = std::min(best, direct_seconds(network, shares, kLarge));
      return;
    }
    for (uint16_t own = 0; own <= left; own = static_cast<uint16_t>(own + kStep)) {
      shares[member] = own;
      choose(member + 1, static_cast<uint16_t>(left - own));
    }
  };
  choose(0, protocol::kSharesTotal);
  return best;
}

TEST(ShareSearch, IsAboutAsGoodAsTryingAllShares) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> log_rate(3, 7);
  for (int world = 0; world < 60; ++world) {
    const size_t members = 3 + world % 2;
    Network network = hosts(std::vector<double>(members, 2000), std::vector<double>(members, 2000));
    for (uint32_t from = 0; from < members; ++from) {
      if (world % 3 == 0) network.out[from] = std::exp(log_rate(random)) * kMegabit;
      if (world % 3 == 0) network.in[from] = std::exp(log_rate(random)) * kMegabit;
      for (uint32_t to = 0; to < members && world % 3 > 0; ++to)
        network.paths.rate.at(from, to) = std::exp(log_rate(random)) * kMegabit;
    }
    const auto shares = fastest_shares(network);
    ASSERT_TRUE(protocol::are_shares(shares, members));
    EXPECT_LE(direct_seconds(network, shares, kLarge), 1.06 * best_of_all(network)) << world;
  }
}

}  // namespace
}  // namespace pccl::master::topology
