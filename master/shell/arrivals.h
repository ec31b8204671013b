// Arrivals: the connections to a master that belong to no run: those that have not introduced
// themselves yet, and those that are being closed. It decides which of them must be closed at once,
// because any program can open such connections. Connections that have proven a token have limits
// of their own, so that a flood of strangers pushes out none of them. The Shell owns it. It is
// pure: the Shell closes the connections.
// Invariants, after take_excess(): at most `total` connections are here, at most half of them with
// a proof; and those of PendingConnections for each of the two kinds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/net/pending_connections.h"
#include "master/events.h"

namespace pccl::master {

class Arrivals {
 public:
  enum class Proof : uint8_t { kNone, kToken };

  // Whether a new connection from `host` should be closed at once, before it costs anything.
  bool full(const std::string& host) const { return strangers_.full(host); }
  // The connection takes a new place, among those with this proof. `host`: numeric address of the
  // other end.
  void add(ConnectionId id, const std::string& host, Proof proof, Instant now);
  void remove(ConnectionId id);  // does nothing if it is not here
  size_t size() const { return strangers_.size() + proven_.size(); }

  // Removes the connections that must be closed now, and returns them. `total`: the number of
  // descriptors for all of them, at least 1.
  std::vector<ConnectionId> take_excess(size_t total, Instant now);
  // The time at which take_excess() is due again, if nothing is added before.
  std::optional<Instant> deadline() const;

 private:
  net::PendingConnections strangers_, proven_;
};

}  // namespace pccl::master
