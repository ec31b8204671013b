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

// Of a numeric host, as the system writes it; false for a name.
// Only machines near it can reach it: of a private network (RFC 1918, RFC 6598, RFC 4193).
bool is_private(const std::string& host);
// One machine at most has it, and not every machine does: a peer may offer it to others.
bool is_unicast(const std::string& host);

}  // namespace pccl
