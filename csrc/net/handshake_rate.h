// HandshakeRate: decides how many connections of one network may begin a handshake. A network has a
// token bucket: kPerSecond connections a second, and kBurst at once. A network is a result of
// network_of(), as in PendingConnections. This machine has no limit. The class is pure: it has no
// socket, and the owner closes the refused connections. It warns of refusals, once in a while
// (network_warnings.h).
// Invariant: at most kNetworksMax buckets are here. If there is no room for the bucket of a
// network, the network has no limit here; PendingConnections still limits it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/net/network_warnings.h"

namespace pccl::net {

class HandshakeRate {
 public:
  static constexpr int kPerSecond = 200;
  static constexpr int kBurst = 400;
  static constexpr size_t kNetworksMax = 1024;
  using Warn = std::function<void(const std::string&)>;

  explicit HandshakeRate(Warn warn = log_warning) : warn_(std::move(warn)) {}
  // Whether a connection from `host` may begin a handshake. If not, close it at once.
  bool take(const std::string& host, Instant now);
  size_t size() const { return full_at_.size(); }

 private:
  bool take_one(const std::string& network, Instant now);

  Warn warn_;
  // The time at which the bucket of each network will be full again. A full bucket needs no entry.
  std::map<std::string, Instant> full_at_;
  NetworkWarnings warnings_;
};

}  // namespace pccl::net
