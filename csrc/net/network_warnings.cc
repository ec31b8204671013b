#include "csrc/net/network_warnings.h"

#include <utility>

#include "csrc/base/assert.h"

namespace pccl::net {

uint64_t NetworkWarnings::count(const std::string& network, Instant now) {
  const auto at = networks_.find(network);
  if (at != networks_.end()) {
    Counted& counted = at->second;
    ++counted.since;
    if (now - counted.warned < kInterval) return 0;
    counted.warned = now;
    return std::exchange(counted.since, 0);
  }
  if (networks_.size() >= kNetworksMax)
    std::erase_if(networks_, [&](const auto& one) { return now - one.second.warned >= kInterval; });
  if (networks_.size() >= kNetworksMax) return 0;
  networks_[network] = {now, 0};
  PCCL_ASSERT(networks_.size() <= kNetworksMax);
  return 1;
}

}  // namespace pccl::net
