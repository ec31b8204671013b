#include "master/epochs/ring_order.h"

#include <algorithm>
#include <numeric>

namespace pccl::master {
namespace {

// Inserts `newcomer` into the ring where the sum of the hops grows least.
void insert(topology::Tour& ring, const topology::Network& network, uint32_t newcomer) {
  const auto hop = [&](uint32_t from, uint32_t to) {
    return from == to ? 0 : network.paths.hop.at(from, to);
  };
  size_t best = ring.size();
  double least = 0;
  for (size_t place = ring.size(); place > 0; --place) {
    const uint32_t before = ring[place - 1], after = ring[place % ring.size()];
    const double longer = hop(before, newcomer) + hop(newcomer, after) - hop(before, after);
    if (place == ring.size() || longer < least) best = place, least = longer;
  }
  ring.insert(ring.begin() + static_cast<ptrdiff_t>(best), newcomer);
}

}  // namespace

topology::Tour ring_order(const Links& links, const std::vector<PeerId>& members,
                          const RoutesBefore& before) {
  if (const topology::Plan* const plan = before.plan_for(members)) return plan->ring;
  topology::Tour ring(members.size());
  std::iota(ring.begin(), ring.end(), 0u);
  const protocol::EpochStart* const last = before.start;
  if (last == nullptr || std::is_sorted(last->ring.begin(), last->ring.end())) return ring;
  ring.clear();
  for (const uint32_t rank : last->ring) {
    if (rank >= last->members.size()) continue;  // from the journal of another version
    const uint32_t now = rank_in(members, last->members[rank].peer);
    if (now < members.size()) ring.push_back(now);
  }
  if (ring.size() == members.size()) return ring;
  const topology::Network network = guessed_network(links, members);
  for (uint32_t rank = 0; rank < members.size(); ++rank) {
    const bool is_there = std::find(ring.begin(), ring.end(), rank) != ring.end();
    if (!is_there) ring.empty() ? ring.push_back(rank) : insert(ring, network, rank);
  }
  return ring;
}

}  // namespace pccl::master
