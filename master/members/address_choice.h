// address_choice: decides which addresses of a peer another peer may dial (PROTOCOL.md, section 2,
// Addresses). A peer may register any address, and the others dial it. These rules prevent a
// stranger from using the members to explore their networks. They rest on the only address that a
// peer cannot choose freely: the one from which it is connected to the master. The master does not
// resolve names, so it does not judge them. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/endpoint.h"

namespace pccl::master {

// The addresses of a peer.
struct Location {
  std::string seen_host;  // numeric: where the master sees it
  bool seen_loopback = false;
  std::string host;  // as the peer registered it; empty: use `seen_host`
  uint16_t port = 0;
  std::vector<Endpoint> others = {};  // further addresses
};

// The news about the attempts to reach a peer that this peer itself may get while it is no member.
enum class Disclosure : uint8_t {
  kFull,     // the words of the system: the master sees the peer at all dialled addresses
  kReason,   // the fault at the first address: the master sees the peer there
  kFailure,  // that all attempts fail, and nothing before a fixed time is over
};

struct AddressChoice {
  Endpoint first;  // an empty host means the host of the master (see protocol::Dial)
  std::vector<Endpoint> others;
  // Why the registered host is not dialled: "advertises 10.0.0.7, a private address, and ...".
  // Empty: it is dialled, or there is none.
  std::string left_out;
  Disclosure disclosure = Disclosure::kFull;
};

// The addresses of `target` that `dialler` may dial. A private address is dialled only between two
// peers that the master sees in one network: both at private or loopback addresses, or both at the
// same public one. If the registered host may not be dialled, the first address is the one that the
// master sees.
AddressChoice choose_addresses(const Location& dialler, const Location& target);

// Returns why a peer that the master sees there may not register this host; empty: it may.
std::string refuse_host(const std::string& host, const Location& seen);
// Whether all of these are numeric addresses with ports.
bool are_numeric(const std::vector<Endpoint>& others);
// Returns the addresses that belong to one machine each. A peer may list all addresses of its
// interfaces, so the rest is no fault of it.
std::vector<Endpoint> dialable(std::vector<Endpoint> others);

}  // namespace pccl::master
