// address: converts socket addresses and system errors to and from readable text.
// Plain values and functions; any thread may use them. Only resolve_now() can block.
// Failure: an empty list, or a kSystem Status from resolve_now().
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/result.h"

namespace pccl::net {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);

  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  // Without the port: "10.0.0.7", "fe80::1%eth0". An IPv4-mapped IPv6 address is shown as IPv4.
  std::string host() const;
  bool is_loopback() const;
  bool operator==(const Address& other) const;
};

// The address of one end of a connected socket; family AF_UNSPEC if the system has none.
Address peer_address(int fd);
Address local_address(int fd);

// The IPv4 and IPv6 addresses of a list, in its order and without duplicates, with `port`.
std::vector<Address> addresses_of(const addrinfo* list, uint16_t port);
// The address of a literal such as "::1". For kLoopback, both loopback addresses: no lookup is
// made, so this name also works on a machine without /etc/hosts. Empty for any other name.
std::vector<Address> literal_address(const std::string& host, uint16_t port);
// The addresses of a literal or a name. Blocks while the resolver works.
Result<std::vector<Address>> resolve_now(const std::string& host, uint16_t port);

// The numeric addresses of this machine's interfaces that are up, without loopback.
std::vector<std::string> interface_hosts();

// Returns a number that identifies this machine and its present boot: two processes with the same
// number run on one machine. 0: unknown.
uint64_t machine_id();

// Returns the network of a numeric host: the addresses that usually belong to one user. It is the
// IPv4 address itself, or the first 64 bits of an IPv6 address. Examples: "10.0.0.7",
// "2001:db8:0:1::/64".
std::string network_of(const std::string& host);
// Whether `network`, a result of network_of(), is this machine's loopback. Any number of peers may
// run there.
bool is_this_machine(const std::string& network);

// The text of an errno value: "connection refused" for ECONNREFUSED.
std::string error_text(int error_number);
// The reason why a name has no address, for an error code of uv_getaddrinfo().
std::string resolve_error_text(int uv_code);

}  // namespace pccl::net
