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

// The kind of a host in any of the forms that a system takes: "127.1", "::ffff:127.0.0.1" and
// "localhost" are loopback.
enum class HostKind : uint8_t {
  kName,  // only a resolver knows its addresses
  kPublic,
  kPrivate,    // see is_private()
  kLinkLocal,  // of a neighbour in one network segment
  kLoopback,   // of the machine itself; the unspecified address leads there, too
  kMulticast,  // belongs to no machine
};
// An IPv6 address that stands for an IPv4 one has the kind of the latter.
HostKind host_kind(const std::string& host);
// "a private address". REQUIRES: no name.
const char* text(HostKind kind);
// Whether both are the same address, in any form; for names, whether both are equal.
bool is_same_host(const std::string& a, const std::string& b);
// Whether two addresses usually belong to one user: the same IPv4 address, or the same first 64
// bits of an IPv6 address. False for names.
bool is_same_network(const std::string& a, const std::string& b);

}  // namespace pccl
