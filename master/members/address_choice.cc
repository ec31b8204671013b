#include "master/members/address_choice.h"

#include <algorithm>

namespace pccl::master {
namespace {

// Whether the master sees the peer in a private network, or on its own machine.
bool is_nearby(const Location& peer) {
  const HostKind kind = host_kind(peer.seen_host);
  return peer.seen_loopback || (kind != HostKind::kName && kind != HostKind::kPublic);
}

bool are_in_one_network(const Location& a, const Location& b) {
  return (is_nearby(a) && is_nearby(b)) || is_same_network(a.seen_host, b.seen_host);
}

// Two peers on the machine of the master can explore it without help.
bool may_dial(const Location& dialler, const Location& target, const std::string& host) {
  if (dialler.seen_loopback && target.seen_loopback) return true;
  switch (host_kind(host)) {
    case HostKind::kName:
    case HostKind::kPublic: return true;
    case HostKind::kPrivate: return are_in_one_network(dialler, target);
    case HostKind::kLinkLocal:
      return is_same_host(host, target.seen_host) && are_in_one_network(dialler, target);
    case HostKind::kLoopback:
    case HostKind::kMulticast: break;
  }
  return false;
}

// The address that the master sees, for this dialler. The address of a peer on the machine of the
// master, or in its private network, means nothing elsewhere. The name of the master leads there.
std::string seen_from(const Location& dialler, const Location& target) {
  const bool means_the_same =
      target.seen_loopback ? dialler.seen_loopback : is_nearby(dialler) || !is_nearby(target);
  return means_the_same ? target.seen_host : "";
}

std::string advertised_at(const Location& peer) {
  return "advertises " + peer.host + ", " + text(host_kind(peer.host)) +
         ", and the master sees it at " + peer.seen_host;
}

}  // namespace

AddressChoice choose_addresses(const Location& dialler, const Location& target) {
  AddressChoice choice;
  const bool as_registered = !target.host.empty() && may_dial(dialler, target, target.host);
  choice.first = {as_registered ? target.host : seen_from(dialler, target), target.port};
  for (const Endpoint& at : target.others) {
    if (at != choice.first && may_dial(dialler, target, at.host)) choice.others.push_back(at);
  }
  if (!target.host.empty() && !as_registered) {
    const Endpoint& at = choice.first;
    choice.left_out = advertised_at(target) + "; it was dialled at " +
                      (at.host.empty() ? "the host of the master" : at.host) +
                      " instead, because the master does not see both in one network";
  }
  const auto is_as_seen = [&target](const Endpoint& at) {
    return at.host.empty() || is_same_host(at.host, target.seen_host);
  };
  const bool all = std::all_of(choice.others.begin(), choice.others.end(), is_as_seen);
  choice.disclosure = !is_as_seen(choice.first) ? Disclosure::kFailure
                      : all                     ? Disclosure::kFull
                                                : Disclosure::kReason;
  return choice;
}

std::string refuse_host(const std::string& host, const Location& seen) {
  if (host.empty() || seen.seen_loopback || is_same_host(host, seen.seen_host)) return {};
  const HostKind kind = host_kind(host);
  const bool leads_elsewhere =
      kind == HostKind::kLoopback || kind == HostKind::kLinkLocal || kind == HostKind::kMulticast;
  if (!leads_elsewhere) return {};
  Location peer = seen;
  peer.host = host;
  return "this peer " + advertised_at(peer) +
         ": the others would not reach this peer there. Set PCCL_ADVERTISE to an address or a name "
         "at which they reach it, or unset it";
}

bool are_numeric(const std::vector<Endpoint>& others) {
  return std::none_of(others.begin(), others.end(), [](const Endpoint& at) {
    return host_kind(at.host) == HostKind::kName || at.port == 0;
  });
}

std::vector<Endpoint> dialable(std::vector<Endpoint> others) {
  std::erase_if(others, [](const Endpoint& at) { return !is_unicast(at.host); });
  return others;
}

}  // namespace pccl::master
