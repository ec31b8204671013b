// MasterCore: one run, as its master sees it: who is registered, who is a member, what has been
// posted and what became of it. Pure (no socket, clock or thread): `step` is the only way its state
// changes, `deadline` the only way time gets in. Composed of ballot (joint votes), membership
// (peers, links, epochs), verdict (how operations end), election (shared state). PROTOCOL.md is its
// specification. Events the protocol forbids, from a peer: that connection is closed, as section 1
// says. Nothing a peer can send asserts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"
#include "master/records.h"

namespace pccl::master {

// A control connection, named by the shell; never reused.
struct ConnectionId {
  uint64_t value = 0;
  friend auto operator<=>(const ConnectionId&, const ConnectionId&) = default;
};

// ---- Events ----
struct Accepted {  // a new connection whose first message is in the Received that follows
  ConnectionId connection;
  std::string seen_host;       // numeric address of the peer
  bool seen_loopback = false;  // it came over loopback
};
struct Received {
  ConnectionId connection;
  protocol::Message message;
};
struct Closed {
  ConnectionId connection;
  std::string why;
};
struct Persisted {
  uint64_t token = 0;
};
struct TimePassed {};
struct Draining {
};  // the process wants to end: have it confirmed now that all has arrived, see settled()
struct Ended {  // the shell ends the run: it is idle() after this step
  std::string why;
};
using Event = std::variant<Accepted, Received, Closed, Persisted, TimePassed, Draining, Ended>;

// ---- Effects, to be carried out in order ----
struct Send {
  ConnectionId connection;
  protocol::Message message;
};
struct Close {
  ConnectionId connection;
};  // after what was sent has left; no Closed event follows
struct Persist {
  uint64_t token = 0;
  Record record;
};
struct Log {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};
using Effect = std::variant<Send, Close, Persist, Log>;
using Effects = std::vector<Effect>;

struct Options {
  std::string run;
  uint64_t run_id = 0;  // random
  uint32_t incarnation = 1;
  bool loopback_only = false;
  uint32_t exchange_bytes = protocol::kExchangeBytesMax;  // see EpochStart; of small groups
  uint16_t version = protocol::kSpoken.highest;           // of the protocol, that the run speaks
};

class MasterCore {
 public:
  explicit MasterCore(Options options);
  // After a restart: goes on from what was durable (PROTOCOL.md, section 7). `options.incarnation`
  // is higher than any before; the first step has to follow at once, TimePassed will do.
  MasterCore(Options options, const RunRecord& remembered);
  ~MasterCore();
  MasterCore(MasterCore&&) noexcept;
  MasterCore& operator=(MasterCore&&) noexcept;

  void step(const Event& event, Instant now, Effects& effects);
  // How many groups all steps so far have looked at, as often as they did: what they have cost.
  uint64_t groups_looked_at() const;
  // When to step with TimePassed, if nothing else happens before.
  std::optional<Instant> deadline() const;

  // No peer is connected or expected back: all that is left of the run is its shared states.
  bool idle() const;
  std::vector<SharedStateRecord> shared_states() const;  // that were agreed on, by group
  // Some group of it has had members, in this life of the master or before it.
  bool founded() const;
  // All verdicts and answers sent so far are known to have arrived (an embedded master may go).
  bool settled() const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace pccl::master
