#include "master/topology/trunk_guess.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/shares.h"

namespace pccl::master::topology {
namespace {

using Side = std::vector<bool>;  // by member

// The RTTs of the links that join the members of a side are smaller, by this factor, than the RTT
// of each link to another member.
constexpr double kApart = 2;
// Maximum number of guessed trunks. Each costs time whenever the speed of a plan is predicted, and
// few matter.
constexpr size_t kTrunksMax = 4;

// Joins the members by their links, the shortest first. A set of two or more members is a side if
// the next link that joins it to others is much longer than its own links. The other members are
// the opposite side. A single member is no side: its uplink is known (Network::out, in).
std::set<Side> sides_of(const CostTable& rtt) {
  const auto members = static_cast<uint32_t>(rtt.places());
  std::vector<std::tuple<double, uint32_t, uint32_t>> links;
  for (uint32_t low = 0; low < members; ++low) {
    for (uint32_t high = low + 1; high < members; ++high)
      links.emplace_back(rtt.at(low, high), low, high);
  }
  std::sort(links.begin(), links.end());
  std::vector<uint32_t> set(members);
  std::iota(set.begin(), set.end(), 0u);
  std::vector<double> longest(members);  // by set: the longest link that has joined it
  std::set<Side> sides;
  const auto note = [&](uint32_t which, double next) {
    Side side(members);
    for (uint32_t member = 0; member < members; ++member) side[member] = set[member] == which;
    const auto size = std::count(side.begin(), side.end(), true);
    if (size < 2 || size + 2 > members || next < kApart * longest[which]) return;
    sides.insert(side);
    side.flip();
    sides.insert(side);
  };
  for (const auto& [length, low, high] : links) {
    const uint32_t kept = set[low], joined = set[high];
    if (kept == joined) continue;
    note(kept, length);
    note(joined, length);
    std::replace(set.begin(), set.end(), joined, kept);
    longest[kept] = length;
  }
  return sides;
}

// Adds the rates of all probes from this side to the other, round by round. Returns the highest
// sum; 0: no probe has crossed.
double most_across(const Side& from, const std::vector<Probed>& probes) {
  std::map<uint32_t, double> rates;
  double most = 0;
  for (const Probed& one : probes) {
    if (from[one.from] && !from[one.to]) most = std::max(most, rates[one.round] += one.rate);
  }
  return most;
}

}  // namespace

std::vector<Network::Trunk> guessed_trunks(const Network& network, const CostTable& rtt,
                                           const std::vector<Probed>& probes) {
  const size_t members = network.paths.members();
  PCCL_ASSERT(members >= 2 && rtt.places() == members);
  constexpr double kMany = 1e18;  // bytes, so many that the hops do not count
  const std::vector<uint16_t> equal = protocol::equal_shares(members);
  Network alone = network;
  alone.trunks.clear();
  const double without = direct_seconds(alone, equal, kMany);
  std::vector<Network::Trunk> trunks;
  for (Side from : sides_of(rtt)) {
    const double rate = most_across(from, probes);
    if (rate == 0) continue;
    Side to = from;
    to.flip();
    alone.trunks = {{std::move(from), std::move(to), rate}};
    if (direct_seconds(alone, equal, kMany) > without) trunks.push_back(alone.trunks.front());
  }
  std::stable_sort(trunks.begin(), trunks.end(),
                   [](const auto& one, const auto& other) { return one.rate < other.rate; });
  if (trunks.size() > kTrunksMax) trunks.resize(kTrunksMax);
  return trunks;
}

}  // namespace pccl::master::topology
