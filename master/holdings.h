// Holdings: how much the master keeps for each connection (bytes that came and are no whole message
// yet, or bytes that wait to be sent), and who has to go when that is too much for all together.
// Pure. The connections of a run are one party, and those that belong to no run are another. A
// party that takes much harms itself, and no connection of another party. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "master/core.h"

namespace pccl::master {

class Holdings {
 public:
  using Party = uint64_t;  // the run's id; 0: of no run

  explicit Holdings(size_t bytes_max) : bytes_max_(bytes_max) {}

  // From now on so much is kept for the connection, which belongs to this party.
  void set(ConnectionId connection, Party party, size_t bytes);
  void forget(ConnectionId connection) { set(connection, 0, 0); }
  size_t of(ConnectionId connection) const;
  size_t total() const { return total_; }
  // While it is more than there may be: the largest connection of the party that has most.
  std::optional<ConnectionId> excess() const;
  // All that are known, smallest id first.
  template <typename F>
  void for_each(F&& call) const {
    for (const auto& [connection, held] : held_) call(connection, held.party);
  }

 private:
  struct Held {
    Party party = 0;
    size_t bytes = 0;
  };
  const size_t bytes_max_;
  size_t total_ = 0;
  std::map<ConnectionId, Held> held_;  // only those that have some
  std::map<Party, size_t> of_party_;   // likewise
};

}  // namespace pccl::master
