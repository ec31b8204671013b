// address: socket addresses and system errors, from and to the words people use. Any thread; never
// blocks, but for resolve_now().
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/status.h"

namespace pccl::net {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);

  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  // Without the port: "10.0.0.7", "fe80::1%eth0". An IPv4 address inside an IPv6 one is shown as
  // IPv4.
  std::string host() const;
  bool is_loopback() const;
  bool operator==(const Address& other) const;
};

// One end of a connected socket; family AF_UNSPEC if there is none any more.
Address peer_address(int fd);
Address local_address(int fd);

// All addresses of a list, in its order, once each, with `port`.
std::vector<Address> addresses_of(const addrinfo* list, uint16_t port);
// The one address that a literal such as "::1" says; empty for a name.
std::vector<Address> literal_address(const std::string& host, uint16_t port);
// Literal or name; asks the resolver and may wait for it.
Result<std::vector<Address>> resolve_now(const std::string& host, uint16_t port);

// The addresses of this machine's interfaces that are up, but loopback; numeric.
std::vector<std::string> interface_hosts();

// The network of a numeric host that belongs to one user as a rule: an IPv4 address itself, the
// first 64 bits of an IPv6 address: "10.0.0.7", "2001:db8:0:1::/64".
std::string network_of(const std::string& host);

// "connection refused", for errno's ECONNREFUSED.
std::string error_text(int error_number);
// Why a name has no address, for a code of uv_getaddrinfo().
std::string resolve_error_text(int uv_code);

}  // namespace pccl::net
