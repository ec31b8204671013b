// Observing serves the observers of a master: it makes snapshots, sends them in parts, and closes
// the connections of observers that break a rule. Observers (operator/observers.h) decides. The
// Shell owns it, on its loop, and has the connections.
// Snapshots are made by a timer of this object, never within a call of a method. So a method
// changes no connection but the one that it is about.
// Failure: a run that is not under way, or whose snapshot is too large, refuses its observers.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/net/loop.h"
#include "master/operator/observers.h"

namespace pccl::master {

class Observing {
 public:
  struct Callbacks {
    // A snapshot, or the reason why there is none: the run is not under way.
    std::function<std::variant<nlohmann::json, protocol::Reject>(const std::string& run)>
        snapshot_of;
    std::function<void(ConnectionId, const protocol::Message&)> send;
    // Sends the Reject, and closes the connection.
    std::function<void(ConnectionId, const std::string& run, const protocol::Reject&)> refuse;
    std::function<size_t(ConnectionId)> unsent;  // bytes that wait to be sent
    std::function<void(ConnectionId, const std::string& why)> close;
  };
  // `most`: of the observers.
  Observing(net::Loop& loop, Callbacks callbacks, size_t most);

  // A connection has sent its first Watch. Returns the reason if it is refused.
  std::optional<protocol::Reject> add(ConnectionId id, const std::string& run);
  // A further message of an observer. REQUIRES: it is known.
  void receive(ConnectionId id, const protocol::Message& message);
  void forget(ConnectionId id) { observers_.forget(id); }  // its connection is closing
  bool contains(ConnectionId id) const { return observers_.contains(id); }
  size_t size() const { return observers_.size(); }

 private:
  void work();
  void answer(const Observers::Due& due);
  std::variant<std::vector<protocol::Message>, protocol::Reject> parts_of(const std::string& run);
  void arm();

  const Callbacks callbacks_;
  Observers observers_;
  net::Timer timer_;
};

}  // namespace pccl::master
