#include "csrc/net/handshake_rate.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/net/address.h"

namespace pccl::net {
namespace {

// `kPerToken`: the time between two tokens of a bucket. `kToFill`: the time in which an empty
// bucket fills.
constexpr Duration kPerToken = Duration(std::chrono::seconds(1)) / HandshakeRate::kPerSecond;
constexpr Duration kToFill = kPerToken * HandshakeRate::kBurst;

}  // namespace

bool HandshakeRate::take(const std::string& host, Instant now) {
  const std::string network = network_of(host);
  if (is_this_machine(network) || take_one(network, now)) return true;
  if (const uint64_t count = warnings_.count(network, now); count > 0) {
    warn_("closed " + count_text(count, "connection") + " from " + network +
          " at once: more than " + std::to_string(kPerSecond) + " a second come from there");
  }
  return false;
}

bool HandshakeRate::take_one(const std::string& network, Instant now) {
  auto bucket = full_at_.find(network);
  if (bucket == full_at_.end()) {
    if (full_at_.size() >= kNetworksMax)
      std::erase_if(full_at_, [now](const auto& one) { return one.second <= now; });
    if (full_at_.size() >= kNetworksMax) return true;
    bucket = full_at_.emplace(network, now).first;
  }
  const Instant full_at = std::max(bucket->second, now) + kPerToken;
  if (full_at - now > kToFill) return false;
  bucket->second = full_at;
  return true;
}

}  // namespace pccl::net
