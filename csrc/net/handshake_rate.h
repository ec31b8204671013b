// HandshakeRate: decides how many connections of one network may begin a handshake. A network has a
// token bucket: kPerSecond connections a second, and kBurst at once. Networks are as in
// PendingConnections (network_of), and this machine has no limit. It is pure: it knows no socket,
// and the owner closes the refused connections. It warns of refusals, once in a while
// (network_warnings.h).
// Invariant: at most kNetworksMax buckets are here. A network without room for its bucket has no
// limit here; PendingConnections still limits it.
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
  // When the bucket of each network will be full again. A full bucket is not here.
  std::map<std::string, Instant> full_at_;
  NetworkWarnings warnings_;
};

}  // namespace pccl::net
