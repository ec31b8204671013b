// Endpoint: an address to listen on or to connect to: a host, as a name or a numeric address, and a
// port. A plain value.
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

// is_private() and is_unicast() expect a numeric host in the form that the system writes. Both
// return false for a name.
// is_private() is true for an address of a private network (RFC 1918, RFC 6598, RFC 4193): few
// machines can reach it.
bool is_private(const std::string& host);
// True for an address that belongs to one machine, so that a peer may offer it to others. It is not
// unspecified, loopback, link-local or multicast, nor an IPv6 address that stands for an IPv4 one.
bool is_unicast(const std::string& host);

}  // namespace pccl
