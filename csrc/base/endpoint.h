// Endpoint: where somebody listens: a name or a numeric address, and a port.
#pragma once

#include <cstdint>
#include <string>

namespace pccl {

struct Endpoint {
  std::string host;
  uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
};
// "host:port", "[v6]:port".
std::string text(const Endpoint& endpoint);

// These take a numeric host as the system writes it. They are false for a name.
// It is an address of a private network (RFC 1918, RFC 6598, RFC 4193): few machines can reach it.
bool is_private(const std::string& host);
// It belongs to one machine, so a peer may offer it to others: it is neither loopback nor
// link-local nor multicast.
bool is_unicast(const std::string& host);

}  // namespace pccl
