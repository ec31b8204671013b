// PendingConnections: decides which pending connections must be closed: accepted connections whose
// other end has proven nothing yet. Any program can open such connections, so there are limits for
// their number, for their time and for the share of one network. A flood pushes out its own
// connections: the victim is always the oldest connection of the network that has the largest
// number of them. So a peer from another network gets in during the flood.
// It is pure: it knows no socket. The owner closes the connections.
// Invariants, after take_excess():
//   1. At most `total` connections are here.
//   2. A network, except this machine, has at most `per_network_max` connections older than
//      kYoung. Younger ones do not count, because many can be accepted at once before their first
//      bytes are read.
//   3. No connection is here longer than kHelloTimeout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"

namespace pccl::net {

class PendingConnections {
 public:
  static constexpr size_t kPerNetworkMax = 64;
  static constexpr Duration kYoung = std::chrono::milliseconds(100);
  // The largest number of connections of one network, young ones included.
  static constexpr size_t kBurstMax = 512;
  using Id = uint64_t;

  explicit PendingConnections(size_t per_network_max = kPerNetworkMax)
      : per_network_max_(per_network_max) {}

  // Whether a connection from `host` should be closed at once, before it costs anything.
  bool full(const std::string& host) const;
  // `host`: numeric address of the other end. REQUIRES: the id is not here.
  void add(Id id, const std::string& host, Instant now);
  void remove(Id id);  // does nothing if it is not here
  bool contains(Id id) const { return all_.contains(id); }
  size_t size() const { return all_.size(); }

  // Removes the connections that must be closed now, and returns them.
  std::vector<Id> take_excess(size_t total, Instant now);
  // The time at which take_excess() is due again, if nothing is added before.
  std::optional<Instant> deadline() const;
  void check() const;  // asserts that the two maps agree

 private:
  using OfNetwork = std::set<std::pair<Instant, Id>>;  // each with the time since which it is here
  OfNetwork& largest();
  size_t beyond_limit(const std::string& network, size_t count) const;

  const size_t per_network_max_;
  std::map<Id, std::pair<std::string, Instant>> all_;  // its network, and since when it is here
  std::map<std::string, OfNetwork> networks_;
};

}  // namespace pccl::net
