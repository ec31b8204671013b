#include "csrc/peer/registration.h"

#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/endpoint.h"

namespace pccl::peer {

void Registration::open_listener(bool loopback_only) {
  if (!std::exchange(opening_, true)) context_.emit(Listen{loopback_only});
}

void Registration::opened(uint16_t port, const std::vector<std::string>& hosts) {
  PCCL_ASSERT(opening_ && !listening_at_);
  const Advertised& outside = context_.options.advertised;
  const int shift = outside.port_first == 0 ? 0 : outside.port_first - outside.listens_first;
  protocol::Register at{outside.host, static_cast<uint16_t>(port + shift)};
  for (const std::string& host : hosts) {
    if (!is_unicast(host) || host == outside.host) continue;
    if (at.others.size() == protocol::kOtherAddressesMax) break;
    at.others.push_back({host, port});
  }
  listening_at_ = std::move(at);
}

void Registration::tell() {
  PCCL_ASSERT(ready());
  context_.send(*listening_at_);
}

}  // namespace pccl::peer
