#include "csrc/base/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
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

bool is_private_v4(uint32_t v4) {
  return is_in(v4, 0x0a000000, 8) || is_in(v4, 0xac100000, 12) || is_in(v4, 0xc0a80000, 16) ||
         is_in(v4, 0x64400000, 10);
}

// The address of a host that is none by name. An IPv4 address is mapped into IPv6 (::ffff:a.b.c.d).
std::optional<in6_addr> numeric(const std::string& host) {
  if (auto v6 = v6_of(host.substr(0, host.find('%')))) return v6;
  in_addr v4{};
  if (inet_aton(host.c_str(), &v4) == 0) return std::nullopt;  // takes "127.1" and "0x7f000001"
  in6_addr mapped{};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&v4.s_addr);
  std::copy(bytes, bytes + 4, mapped.s6_addr + 12);
  return mapped;
}

// The IPv4 address that this one stands for.
std::optional<uint32_t> v4_in(const in6_addr& address) {
  const bool stands_for_v4 =
      IN6_IS_ADDR_V4MAPPED(&address) || IN6_IS_ADDR_V4COMPAT(&address) || is_nat64(address);
  if (!stands_for_v4) return std::nullopt;
  uint32_t v4 = 0;
  for (int i = 12; i < 16; ++i) v4 = v4 << 8 | address.s6_addr[i];
  return v4;
}

HostKind kind_of_v4(uint32_t v4) {
  if (is_in(v4, 0, 8) || is_in(v4, 0x7f000000, 8)) return HostKind::kLoopback;
  if (is_in(v4, 0xa9fe0000, 16)) return HostKind::kLinkLocal;
  if (is_in(v4, 0xe0000000, 3)) return HostKind::kMulticast;
  return is_private_v4(v4) ? HostKind::kPrivate : HostKind::kPublic;
}

HostKind kind_of_name(std::string name) {
  for (char& one : name) one = static_cast<char>(std::tolower(static_cast<unsigned char>(one)));
  if (name.ends_with('.')) name.pop_back();
  const bool here = name == "localhost" || name.ends_with(".localhost") ||
                    name == "ip6-localhost" || name == "ip6-loopback";
  return here ? HostKind::kLoopback : HostKind::kName;
}

bool is_same(const in6_addr& a, const in6_addr& b, size_t bytes) {
  return std::equal(a.s6_addr, a.s6_addr + bytes, b.s6_addr);
}

}  // namespace

bool is_private(const std::string& host) {
  if (const auto v4 = v4_of(host)) return is_private_v4(*v4);
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

HostKind host_kind(const std::string& host) {
  const auto address = numeric(host);
  if (!address) return kind_of_name(host);
  if (const auto v4 = v4_in(*address)) return kind_of_v4(*v4);
  if (IN6_IS_ADDR_UNSPECIFIED(&*address) || IN6_IS_ADDR_LOOPBACK(&*address))
    return HostKind::kLoopback;
  if (IN6_IS_ADDR_MULTICAST(&*address)) return HostKind::kMulticast;
  if (IN6_IS_ADDR_LINKLOCAL(&*address)) return HostKind::kLinkLocal;
  const bool is_unique_local = (address->s6_addr[0] & 0xfe) == 0xfc;
  const bool inner = is_unique_local || IN6_IS_ADDR_SITELOCAL(&*address);
  return inner ? HostKind::kPrivate : HostKind::kPublic;
}

const char* text(HostKind kind) {
  switch (kind) {
    case HostKind::kName: break;
    case HostKind::kPublic: return "a public address";
    case HostKind::kPrivate: return "a private address";
    case HostKind::kLinkLocal: return "a link-local address";
    case HostKind::kLoopback: return "a loopback address";
    case HostKind::kMulticast: return "a multicast address";
  }
  PCCL_ASSERT(false);
  return "";
}

bool is_same_host(const std::string& a, const std::string& b) {
  const auto one = numeric(a), other = numeric(b);
  return one && other ? is_same(*one, *other, sizeof one->s6_addr) : a == b;
}

// All IPv4 addresses have the same first 64 bits in IPv6.
bool is_same_network(const std::string& a, const std::string& b) {
  const auto one = numeric(a), other = numeric(b);
  if (!one || !other) return false;
  const bool whole = v4_in(*one) || v4_in(*other);
  return is_same(*one, *other, whole ? sizeof one->s6_addr : sizeof one->s6_addr / 2);
}

std::string text(const Endpoint& endpoint) {
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? "[" + endpoint.host + "]" : endpoint.host;
  return host + ":" + std::to_string(endpoint.port);
}

}  // namespace pccl
