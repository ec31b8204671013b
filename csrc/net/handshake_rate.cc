#include "csrc/net/handshake_rate.h"

#include "csrc/base/text.h"
#include "csrc/net/address.h"

namespace pccl::net {

bool HandshakeRate::take(const std::string& host, Instant now) {
  if (buckets_.take(host, now)) return true;
  const std::string network = network_of(host);
  if (const uint64_t count = warnings_.count(network, now); count > 0) {
    warn_("closed " + count_text(count, "connection") + " from " + network +
          " at once: more than " + std::to_string(kPerSecond) + " a second come from there");
  }
  return false;
}

}  // namespace pccl::net
