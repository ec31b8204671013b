#include "csrc/net/pending_connections.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/net/address.h"
#include "csrc/protocol/limits.h"

namespace pccl::net {

// The number of connections that a network has too many.
size_t PendingConnections::beyond_limit(const std::string& network, size_t count) const {
  return is_this_machine(network) ? 0 : count - std::min(count, per_network_max_);
}

bool PendingConnections::full(const std::string& host) const {
  const auto network = networks_.find(network_of(host));
  return network != networks_.end() && network->second.size() >= kBurstMax;
}

void PendingConnections::add(Id id, const std::string& host, Instant now) {
  PCCL_ASSERT(all_.empty() || id > all_.rbegin()->first);
  const std::string network = network_of(host);
  all_[id] = {network, now};
  networks_[network][id] = now;
}

void PendingConnections::remove(Id id) {
  const auto at = all_.find(id);
  if (at == all_.end()) return;
  const auto network = networks_.find(at->second.network);
  network->second.erase(id);
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
  const auto take = [&](Id id) {
    excess.push_back(id);
    remove(id);
  };
  while (!all_.empty() && all_.begin()->second.since + protocol::kHelloTimeout <= now)
    take(all_.begin()->first);
  std::vector<Id> too_many;
  for (const auto& [network, of] : networks_) {
    size_t beyond = beyond_limit(network, of.size());
    for (auto at = of.begin(); beyond > 0 && at->second + kYoung <= now; ++at, --beyond)
      too_many.push_back(at->first);
  }
  for (const Id id : too_many) take(id);
  while (all_.size() > total) take(largest().begin()->first);
#ifndef NDEBUG
  check();
#endif
  return excess;
}

// A network with too many connections is looked at again when its oldest is no longer young.
std::optional<Instant> PendingConnections::deadline() const {
  if (all_.empty()) return std::nullopt;
  Instant due = all_.begin()->second.since + protocol::kHelloTimeout;
  for (const auto& [network, of] : networks_) {
    if (beyond_limit(network, of.size()) > 0) due = std::min(due, of.begin()->second + kYoung);
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
