// HandshakeRate: decides how many connections of one network may begin a handshake: kPerSecond
// connections a second, and kBurst at once (network_buckets.h). The class is pure: it has no
// socket, and the owner closes the refused connections. It warns of refusals, once in a while
// (network_warnings.h).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/net/network_buckets.h"
#include "csrc/net/network_warnings.h"

namespace pccl::net {

class HandshakeRate {
 public:
  static constexpr int kPerSecond = 200;
  static constexpr int kBurst = 400;
  using Warn = std::function<void(const std::string&)>;

  explicit HandshakeRate(Warn warn = log_warning) : warn_(std::move(warn)) {}
  // Whether a connection from `host` may begin a handshake. If not, close it at once.
  bool take(const std::string& host, Instant now);
  size_t size() const { return buckets_.size(); }

 private:
  Warn warn_;
  NetworkBuckets buckets_{kPerSecond, kBurst};
  NetworkWarnings warnings_;
};

}  // namespace pccl::net
