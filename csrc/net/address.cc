#include "csrc/net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <uv.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <span>
#include <string>

#include "csrc/base/ids.h"
#include "csrc/net/socket.h"

namespace pccl::net {
namespace {

constexpr const char* kUnknownName = "unknown host name";

const sockaddr_in& v4(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& v6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}
bool is_mapped(const Address& address) {
  return address.family() == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6(address).sin6_addr);
}

}  // namespace

uint16_t Address::port() const {
  if (family() == AF_INET) return ntohs(v4(*this).sin_port);
  if (family() == AF_INET6) return ntohs(v6(*this).sin6_port);
  return 0;
}

void Address::set_port(uint16_t port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
}

std::string Address::host() const {
  char out[NI_MAXHOST] = "";
  if (is_mapped(*this)) {
    inet_ntop(AF_INET, v6(*this).sin6_addr.s6_addr + 12, out, sizeof out);
  } else {
    getnameinfo(raw(), length, out, sizeof out, nullptr, 0, NI_NUMERICHOST);
  }
  return out;
}

std::vector<std::string> interface_hosts() {
  std::vector<std::string> hosts;
  uv_interface_address_t* all = nullptr;
  int count = 0;
  if (uv_interface_addresses(&all, &count) != 0) return hosts;
  for (const uv_interface_address_t& one : std::span(all, static_cast<size_t>(count))) {
    char out[INET6_ADDRSTRLEN] = "";
    const auto* address = reinterpret_cast<const sockaddr*>(&one.address);
    if (!one.is_internal && uv_ip_name(address, out, sizeof out) == 0) hosts.emplace_back(out);
  }
  uv_free_interface_addresses(all, count);
  return hosts;
}

uint64_t machine_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(file, id) ? tag_id(id).value : 0;
}

std::string network_of(const std::string& host) {
  in6_addr address{};
  const std::string literal = host.substr(0, host.find('%'));
  if (inet_pton(AF_INET6, literal.c_str(), &address) != 1) return host;
  std::fill(address.s6_addr + 8, address.s6_addr + 16, uint8_t{0});
  char out[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &address, out, sizeof out);
  return std::string(out) + "/64";
}

bool is_this_machine(const std::string& network) {
  return network.starts_with("127.") || network == "::/64";
}

bool Address::is_loopback() const {
  if (family() == AF_INET) return ntohl(v4(*this).sin_addr.s_addr) >> 24 == 127;
  if (is_mapped(*this)) return v6(*this).sin6_addr.s6_addr[12] == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6(*this).sin6_addr);
}

bool Address::operator==(const Address& other) const {
  return length == other.length && std::memcmp(&storage, &other.storage, length) == 0;
}

Address peer_address(int fd) {
  Address address;
  if (getpeername(fd, address.raw(), &address.length) != 0) address = {};
  return address;
}

Address local_address(int fd) {
  Address address;
  if (getsockname(fd, address.raw(), &address.length) != 0) address = {};
  return address;
}

std::vector<Address> addresses_of(const addrinfo* list, uint16_t port) {
  std::vector<Address> addresses;
  for (; list != nullptr; list = list->ai_next) {
    if (list->ai_family != AF_INET && list->ai_family != AF_INET6) continue;
    Address address;
    std::memcpy(&address.storage, list->ai_addr, list->ai_addrlen);
    address.length = list->ai_addrlen;
    address.set_port(port);
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(address);
    }
  }
  return addresses;
}

std::vector<Address> literal_address(const std::string& host, uint16_t port) {
  if (host == kLoopback) {  // IPv4 last: if both fail, its error is reported
    std::vector<Address> both = literal_address("::1", port);
    both.push_back(literal_address("127.0.0.1", port)[0]);
    return both;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return {};
  std::vector<Address> addresses = addresses_of(list, port);
  freeaddrinfo(list);
  return addresses;
}

Result<std::vector<Address>> resolve_now(const std::string& host, uint16_t port) {
  if (std::vector<Address> known = literal_address(host, port); !known.empty()) return known;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error == EAI_NONAME) return Status{Code::kSystem, kUnknownName, {}};
  if (error != 0) return Status{Code::kSystem, gai_strerror(error), {}};
  std::vector<Address> addresses = addresses_of(list, port);
  freeaddrinfo(list);
  return addresses;
}

std::string error_text(int error_number) {
  return uv_strerror(uv_translate_sys_error(error_number));
}

std::string resolve_error_text(int uv_code) {
  if (uv_code == UV_EAI_NONAME || uv_code == UV_EAI_NODATA) return kUnknownName;
  return std::string("cannot resolve the host name: ") + uv_strerror(uv_code);
}

}  // namespace pccl::net
