#include "master/topology/trunk_guess.h"

#include <gtest/gtest.h>

#include "csrc/protocol/shares.h"
#include "master/topology/planner.h"
#include "master/topology/tournament.h"

namespace pccl::master::topology {
namespace {

// A network, and what the tournament sees of it.
class TrunkGuess : public testing::Test {
 protected:
  // `site`: of each member. Near members are 4 ms apart, others 80 ms. `rate`: of each path alone.
  // All pairs between two sites share `trunk` in each direction. In MB per second.
  void measure(const std::vector<int>& site, auto&& rate, double trunk) {
    const auto members = static_cast<uint32_t>(site.size());
    Paths paths(members);
    rtt_ = CostTable(members);
    std::vector<PeerId> peers;
    for (uint32_t member = 0; member < members; ++member) peers.push_back({member});
    for (uint32_t from = 0; from < members; ++from) {
      for (uint32_t to = 0; to < members; ++to)
        rtt_.at(from, to) = site[from] == site[to] ? 0.004 : 0.08;
    }
    std::vector<double> out(members), in(members);
    uint32_t number = 0;
    for (const std::vector<Pair>& round : round_robin(peers)) {
      ++number;
      double crossing = 0;
      for (const Pair& pair : round) crossing += site[pair.low.value] != site[pair.high.value];
      for (const Pair& pair : round) {
        const auto low = static_cast<uint32_t>(pair.low.value);
        const auto high = static_cast<uint32_t>(pair.high.value);
        for (const auto& [from, to] : {std::pair(low, high), std::pair(high, low)}) {
          double seen = rate(from, to);
          if (site[from] != site[to]) seen = std::min(seen, trunk / crossing);
          seen *= 1e6;
          paths.rate.at(from, to) = seen;
          paths.hop.at(from, to) = rtt_.at(from, to) / 2;
          probes_.push_back({from, to, seen, number});
          out[from] = std::max(out[from], seen);
          in[to] = std::max(in[to], seen);
        }
      }
    }
    network_ = Network(std::move(paths));
    network_.out = std::move(out);
    network_.in = std::move(in);
    network_.trunks = guessed_trunks(network_, rtt_, probes_);
  }
  Plan plan(double bytes = 16 << 20) const {
    return fastest_plan({network_, protocol::PatternChoice::kAny, {}, true, bytes, {}});
  }
  bool is_direct(double bytes) const {
    const Plan found = plan(bytes);
    return !found.shares.empty() && found.direct.contain(static_cast<uint64_t>(bytes));
  }

  CostTable rtt_{0};
  std::vector<Probed> probes_;
  Network network_{Paths(0)};
};

constexpr double kPlenty = 1e9;

// The world ocean of the lab: a pair across the ocean could have 100 Mbit/s, and all of them have
// 120. The ring crosses it once each way, and direct all-reduces with the parts of all 16 pairs.
TEST_F(TrunkGuess, MeasurementsAloneChooseTheRingAcrossAnOcean) {
  const std::vector<int> site = {0, 0, 0, 0, 1, 1, 1, 1};
  const auto rate = [&](uint32_t from, uint32_t to) {
    return site[from] == site[to] ? 280.0 / 8 : 100.0 / 8;
  };
  measure(site, rate, 120.0 / 8);
  ASSERT_EQ(network_.trunks.size(), 2u) << "one for each direction";
  for (const Network::Trunk& trunk : network_.trunks) EXPECT_DOUBLE_EQ(trunk.rate, 15e6);
  EXPECT_FALSE(is_direct(16 << 20));
  EXPECT_FALSE(is_direct(1 << 30));
  const Tour ring = plan().ring;
  int crossings = 0;
  for (size_t place = 0; place < 8; ++place)
    crossings += site[ring[place]] != site[ring[(place + 1) % 8]];
  EXPECT_EQ(crossings, 2);
  network_.trunks.clear();
  EXPECT_TRUE(is_direct(16 << 20)) << "what the pairs seem to carry one by one";
}

// In whatever order the hosts have joined.
TEST_F(TrunkGuess, TheOrderOfTheMembersDoesNotMatter) {
  const std::vector<int> site = {1, 0, 0, 1, 0, 1, 1, 0};
  measure(
      site, [](uint32_t, uint32_t) { return 35.0; }, 15);
  EXPECT_EQ(network_.trunks.size(), 2u);
  EXPECT_FALSE(is_direct(16 << 20));
}

// Two sides of equal hosts whose paths across are as fast as all others.
TEST_F(TrunkGuess, EqualHostsHaveNoTrunk) {
  for (const size_t members : {4, 5, 8, 11, 12, 18}) {
    std::vector<int> site(members);
    for (size_t member = 0; member < members; ++member) site[member] = member % 3 == 0;
    probes_.clear();
    measure(
        site, [](uint32_t, uint32_t) { return 35.0; }, kPlenty);
    EXPECT_TRUE(network_.trunks.empty()) << members << " members";
  }
}

// The world home of the lab: an uplink is no trunk, and shares avoid it.
TEST_F(TrunkGuess, ASlowUplinkKeepsTheDirectPattern) {
  const auto rate = [](uint32_t from, uint32_t to) {
    if (from == 2) return 60.0 / 8;
    return to == 2 ? 250.0 / 8 : 400.0 / 8;
  };
  measure({0, 0, 1, 0}, rate, kPlenty);
  EXPECT_TRUE(network_.trunks.empty());
  EXPECT_TRUE(is_direct(16 << 20));
}

TEST_F(TrunkGuess, WithoutProbesThereIsNone) {
  Network network{Paths(4)};
  EXPECT_TRUE(guessed_trunks(network, CostTable(4), {}).empty());
}

}  // namespace
}  // namespace pccl::master::topology
