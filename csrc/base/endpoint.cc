#include "csrc/base/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "csrc/base/assert.h"

namespace pccl {
namespace {

std::optional<uint32_t> v4_of(const std::string& host) {
  in_addr address{};
  if (inet_pton(AF_INET, host.c_str(), &address) != 1) return std::nullopt;
  return ntohl(address.s_addr);
}

std::optional<in6_addr> v6_of(const std::string& host) {
  in6_addr address{};
  if (inet_pton(AF_INET6, host.c_str(), &address) != 1) return std::nullopt;
  return address;
}

bool is_in(uint32_t address, uint32_t network, int bits) {
  PCCL_ASSERT(bits > 0 && bits < 32 && network << bits == 0);  // the bits of the host are 0
  return (address ^ network) >> (32 - bits) == 0;
}

// Whether the address is in 64:ff9b::/96 (RFC 6052). A router translates it to an IPv4 address,
// which may be of any kind.
bool is_nat64(const in6_addr& address) {
  constexpr uint8_t kPrefix[12] = {0x00, 0x64, 0xff, 0x9b};
  return std::equal(std::begin(kPrefix), std::end(kPrefix), address.s6_addr);
}

}  // namespace

bool is_private(const std::string& host) {
  if (const auto v4 = v4_of(host)) {
    return is_in(*v4, 0x0a000000, 8) || is_in(*v4, 0xac100000, 12) || is_in(*v4, 0xc0a80000, 16) ||
           is_in(*v4, 0x64400000, 10);
  }
  const auto v6 = v6_of(host);
  return v6 && (v6->s6_addr[0] & 0xfe) == 0xfc;
}

bool is_unicast(const std::string& host) {
  if (const auto v4 = v4_of(host)) {
    return !is_in(*v4, 0, 8) && !is_in(*v4, 0x7f000000, 8) && !is_in(*v4, 0xa9fe0000, 16) &&
           !is_in(*v4, 0xe0000000, 3);
  }
  const auto v6 = v6_of(host);
  return v6 && !IN6_IS_ADDR_UNSPECIFIED(&*v6) && !IN6_IS_ADDR_LOOPBACK(&*v6) &&
         !IN6_IS_ADDR_MULTICAST(&*v6) && !IN6_IS_ADDR_LINKLOCAL(&*v6) &&
         !IN6_IS_ADDR_V4MAPPED(&*v6) && !IN6_IS_ADDR_V4COMPAT(&*v6) && !is_nat64(*v6);
}

std::string text(const Endpoint& endpoint) {
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? "[" + endpoint.host + "]" : endpoint.host;
  return host + ":" + std::to_string(endpoint.port);
}

}  // namespace pccl
