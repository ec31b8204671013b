// Observers: the observers of a master. It decides who may observe, when each gets an answer, and
// who is dropped. An observer asks for snapshots of one run (protocol::Watch). It is no peer: it
// belongs to no MasterCore, has no vote, and keeps no run alive.
// The shell (shell/observing.h) owns it, on its loop. It is pure.
// Invariants:
// 1. There are at most `most` observers, and at most kObserversMax.
// 2. An observer has one question or one answer at a time. So the master never holds more than one
//    snapshot for it.
// 3. A run is described at most once in kSnapshotIntervalMin, and the master describes some run at
//    most once in kPause. So observers cost the loop a bounded share of its time, however many
//    there are and however fast they ask.
// 4. The run whose observer has waited longest comes first.
// Failure: an observer that breaks a rule, does not read its answer in time, or asks nothing for
// too long loses its connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/protocol/limits.h"
#include "master/events.h"

namespace pccl::master {

class Observers {
 public:
  // The shortest time between two snapshots of different runs. A snapshot of the largest run takes
  // some milliseconds.
  static constexpr Duration kPause = std::chrono::milliseconds(50);
  // The bytes of its answer that an observer has not taken yet.
  using Unsent = std::function<size_t(ConnectionId)>;

  explicit Observers(size_t most = protocol::kObserversMax);

  // Adds an observer with its first question, or returns the reason why it is refused.
  // REQUIRES: it is not known.
  std::optional<protocol::Reject> add(ConnectionId id, const std::string& run);
  // A further message of an observer. kProtocol unless it may ask now. REQUIRES: it is known.
  Status receive(ConnectionId id, const protocol::Message& message, size_t unsent);
  void forget(ConnectionId id) { all_.erase(id); }

  bool contains(ConnectionId id) const { return all_.contains(id); }
  size_t size() const { return all_.size(); }

  struct Due {
    std::string run;
    std::vector<ConnectionId> observers;  // by id
  };
  // The observers that get a snapshot of their run now. They count as answered.
  std::optional<Due> take_due(Instant now);
  struct Dropped {
    ConnectionId id;
    std::string why;
  };
  // The observers that have not read their answer in time, or have asked nothing for too long. They
  // are forgotten.
  std::vector<Dropped> take_overdue(Instant now, const Unsent& unsent);
  // When one of the two functions above is due.
  std::optional<Instant> deadline() const;

  void check() const;  // asserts the invariants

 private:
  enum class Phase : uint8_t { kWaits, kAnswered };
  struct Observer {
    std::string run;
    Phase phase = Phase::kWaits;
    uint64_t question = 0;     // number of its last question among those of all observers
    Instant answered_at = {};  // kAnswered only
    Instant look_at = {};      // kAnswered only: when take_overdue() looks at it
  };
  Instant due(const Observer& observer) const;  // REQUIRES: it waits

  const size_t most_;
  std::map<ConnectionId, Observer> all_;
  uint64_t questions_ = 0;
  Instant next_;                            // the next snapshot of any run
  std::map<std::string, Instant> next_of_;  // of a run, if that is later than `next_`
};

}  // namespace pccl::master
