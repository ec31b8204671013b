#include "csrc/net/pending_connections.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/net/address.h"
#include "csrc/protocol/limits.h"

namespace pccl::net {

// The number of connections of `network` beyond its limit, if it has `count` connections.
size_t PendingConnections::beyond_limit(const std::string& network, size_t count) const {
  return is_this_machine(network) ? 0 : count - std::min(count, per_network_max_);
}

bool PendingConnections::full(const std::string& host) const {
  const auto network = networks_.find(network_of(host));
  return network != networks_.end() && network->second.size() >= kBurstMax;
}

void PendingConnections::add(Id id, const std::string& host, Instant now) {
  const std::string network = network_of(host);
  const bool fresh = all_.try_emplace(id, network, now).second;
  PCCL_ASSERT(fresh);
  networks_[network].emplace(now, id);
}

void PendingConnections::remove(Id id) {
  const auto at = all_.find(id);
  if (at == all_.end()) return;
  const auto& [name, since] = at->second;
  const auto network = networks_.find(name);
  network->second.erase({since, id});
  if (network->second.empty()) networks_.erase(network);
  all_.erase(at);
}

PendingConnections::OfNetwork& PendingConnections::largest() {
  PCCL_ASSERT(!networks_.empty());
  const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  return std::max_element(networks_.begin(), networks_.end(), fewer)->second;
}

std::vector<PendingConnections::Id> PendingConnections::take_excess(size_t total, Instant now) {
  std::vector<Id> excess;
  for (const auto& [network, of] : networks_) {
    size_t beyond = beyond_limit(network, of.size());
    for (const auto& [since, id] : of) {
      if (since + (beyond > 0 ? kYoung : protocol::kHelloTimeout) > now) break;
      excess.push_back(id);
      beyond -= std::min<size_t>(beyond, 1);
    }
  }
  for (const Id id : excess) remove(id);
  while (all_.size() > total) {
    excess.push_back(largest().begin()->second);
    remove(excess.back());
  }
#ifndef NDEBUG
  check();
#endif
  return excess;
}

// A network with too many connections is examined again when its oldest connection is no longer
// young.
std::optional<Instant> PendingConnections::deadline() const {
  std::optional<Instant> due;
  for (const auto& [network, of] : networks_) {
    const bool beyond = beyond_limit(network, of.size()) > 0;
    const Instant at = of.begin()->first + (beyond ? kYoung : protocol::kHelloTimeout);
    due = std::min(due.value_or(at), at);
  }
  return due;
}

void PendingConnections::check() const {
  size_t count = 0;
  for (const auto& [network, of] : networks_) {
    PCCL_ASSERT(!of.empty());
    count += of.size();
  }
  PCCL_ASSERT(count == all_.size());
}

}  // namespace pccl::net
