// loopback: who can reach an address. A pure function but for the resolver, which it asks.
#pragma once

#include <algorithm>

#include "csrc/base/endpoint.h"
#include "csrc/net/address.h"

namespace pccl::master {

// Whether only processes of this machine can reach a master that listens on `at`.
inline bool is_loopback(const Endpoint& at) {
  if (at.host.empty()) return false;
  auto addresses = net::resolve_now(at.host, at.port);
  return addresses.ok() &&
         std::all_of(addresses.value().begin(), addresses.value().end(),
                     [](const net::Address& address) { return address.is_loopback(); });
}

}  // namespace pccl::master
