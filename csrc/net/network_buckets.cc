#include "csrc/net/network_buckets.h"

#include <algorithm>

#include "csrc/net/address.h"

namespace pccl::net {

NetworkBuckets::NetworkBuckets(int per_second, int burst)
    : per_token_(Duration(std::chrono::seconds(1)) / per_second), to_fill_(per_token_ * burst) {}

bool NetworkBuckets::take(const std::string& host, Instant now) {
  const std::string network = network_of(host);
  if (is_this_machine(network)) return true;
  auto bucket = full_at_.find(network);
  if (bucket == full_at_.end()) {
    if (full_at_.size() >= kNetworksMax)
      std::erase_if(full_at_, [now](const auto& one) { return one.second <= now; });
    if (full_at_.size() >= kNetworksMax) return true;
    bucket = full_at_.emplace(network, now).first;
  }
  const Instant full_at = std::max(bucket->second, now) + per_token_;
  if (full_at - now > to_fill_) return false;
  bucket->second = full_at;
  return true;
}

}  // namespace pccl::net
