// NetworkBuckets: a token bucket for each network, a result of network_of(). It decides how often
// something that strangers cause may happen. This machine has no limit. It is pure.
// Invariant: at most kNetworksMax buckets are here. If there is no room for the bucket of a
// network, the network has no limit here; PendingConnections still limits it.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "csrc/base/clock.h"

namespace pccl::net {

class NetworkBuckets {
 public:
  static constexpr size_t kNetworksMax = 1024;

  // A bucket holds `burst` tokens, and gets `per_second` tokens in each second.
  NetworkBuckets(int per_second, int burst);
  // Takes a token for `host`. False: the bucket of its network is empty.
  bool take(const std::string& host, Instant now);
  size_t size() const { return full_at_.size(); }

 private:
  const Duration per_token_;  // from one token to the next
  const Duration to_fill_;    // the time in which an empty bucket fills
  // The time at which the bucket of each network will be full again. A full bucket needs no entry.
  std::map<std::string, Instant> full_at_;
};

}  // namespace pccl::net
