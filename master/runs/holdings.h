// Holdings: counts the bytes that the master buffers for each connection (bytes of an incomplete
// message, or bytes to be sent), and chooses which connection to close when the total is too high.
// The shell owns it, on its loop. It is pure. The connections of a run are one party; all
// connections that belong to no run are another.
// Invariants:
// 1. A party that uses much harms only its own connections.
// 2. The bytes of a party, and of all parties, are the sums over their connections. A connection or
//    a party without bytes has no entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "master/events.h"

namespace pccl::master {

class Holdings {
 public:
  using Party = uint64_t;  // the run's id; 0: no run

  explicit Holdings(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Sets the bytes buffered for the connection, and its party.
  void set(ConnectionId connection, Party party, size_t bytes);
  void forget(ConnectionId connection) { set(connection, 0, 0); }
  size_t of(ConnectionId connection) const;
  size_t total() const { return total_; }
  // If the total is above the limit, returns the largest connection of the party that uses most.
  std::optional<ConnectionId> excess() const;
  // Calls `call` for all known connections, smallest id first.
  template <typename F>
  void for_each(F&& call) const {
    for (const auto& [connection, held] : held_) call(connection, held.party);
  }
  // Asserts the invariants.
  void check() const;

 private:
  struct Held {
    Party party = 0;
    size_t bytes = 0;
  };
  const size_t bytes_max_;
  size_t total_ = 0;
  std::map<ConnectionId, Held> held_;  // only connections with bytes
  std::map<Party, size_t> of_party_;   // only parties with bytes
};

}  // namespace pccl::master
