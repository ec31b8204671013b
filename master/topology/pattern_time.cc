#include "master/topology/pattern_time.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::master::topology {
namespace {

// Seconds that these loads take if all travel at the same time. `loads`: the bytes from each member
// to every other member.
double seconds_of(const Network& network, const CostTable& loads) {
  const auto members = static_cast<uint32_t>(network.paths.members());
  std::vector<double> out(members), in(members), across(network.trunks.size());
  double longest = 0;
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      const double load = loads.at(from, to);
      if (load == 0) continue;
      longest = std::max(longest, load / network.paths.rate.at(from, to));
      out[from] += load;
      in[to] += load;
      for (size_t index = 0; index < across.size(); ++index) {
        const Network::Trunk& trunk = network.trunks[index];
        if (trunk.from[from] && trunk.to[to]) across[index] += load;
      }
    }
  }
  for (uint32_t member = 0; member < members; ++member)
    longest =
        std::max({longest, out[member] / network.out[member], in[member] / network.in[member]});
  for (size_t index = 0; index < across.size(); ++index)
    longest = std::max(longest, across[index] / network.trunks[index].rate);
  return longest;
}

double longest_hop(const Paths& paths) {
  double longest = 0;
  for (uint32_t from = 0; from < paths.members(); ++from) {
    for (uint32_t to = 0; to < paths.members(); ++to)
      longest = std::max(longest, from == to ? 0 : paths.hop.at(from, to));
  }
  return longest;
}

}  // namespace

double ring_seconds(const Network& network, const Tour& order, double bytes) {
  const size_t members = network.paths.members();
  PCCL_ASSERT(order.size() == members && members >= 2);
  const double factor = 2.0 * static_cast<double>(members - 1) / static_cast<double>(members);
  CostTable loads(members);
  for (size_t index = 0; index < members; ++index)
    loads.at(order[index], order[(index + 1) % members]) = factor * bytes;
  return seconds_of(network, loads) + factor * network.paths.hop.length(order) +
         longest_hop(network.paths);
}

double direct_seconds(const Network& network, const std::vector<uint16_t>& shares, double bytes) {
  const auto members = static_cast<uint32_t>(network.paths.members());
  PCCL_ASSERT(shares.size() == members && members >= 2);
  CostTable loads(members);
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      if (from != to)
        loads.at(from, to) = bytes * (shares[from] + shares[to]) / protocol::kSharesTotal;
    }
  }
  return seconds_of(network, loads) + 3 * longest_hop(network.paths);
}

}  // namespace pccl::master::topology
