// MasterCore: the state machine of one run at its master. It knows the registered peers, the
// members, the posted operations and their outcomes. PROTOCOL.md is its specification.
// The shell (or the simulator) owns one for each living run and calls it from one thread. It is
// pure: it has no socket, clock or thread. It is composed of ballot (joint votes), membership
// (peers, links, epochs), verdict (how operations end) and election (shared state).
// Invariants:
// 1. Only step() changes its state, and time enters only through step(). deadline() says when
//    TimePassed is due.
// 2. No message of a peer can trigger an assertion.
// 3. The run has a configuration, and beats, if and only if some group has peers.
// 4. A limit that was exceeded has ended the run by the end of the step.
// Failure: if a peer sends what the protocol forbids, its connection is closed (PROTOCOL.md,
// section 1).
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

// A control connection. The shell assigns the number and never reuses it.
struct ConnectionId {
  uint64_t value = 0;
  friend auto operator<=>(const ConnectionId&, const ConnectionId&) = default;
};

// ---- Events ----
struct Accepted {  // a new connection; its first message is in the Received that follows
  ConnectionId connection;
  std::string seen_host;       // numeric address of the peer
  bool seen_loopback = false;  // the connection came over loopback
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
// The process wants to end. Asks the peers to confirm what they have received; see settled().
struct Draining {};
struct Ended {  // the shell ends the run: the core is idle() after this step
  std::string why;
};
using Event = std::variant<Accepted, Received, Closed, Persisted, TimePassed, Draining, Ended>;

// ---- Effects, to be performed in order ----
struct Send {
  ConnectionId connection;
  protocol::Message message;
};
// Closes the connection after all sent messages have left. No Closed event follows.
struct Close {
  ConnectionId connection;
};
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
  // maximum for small groups, see EpochStart
  uint32_t one_shot_bytes = protocol::kOneShotBytesMax;
  uint16_t version = protocol::kSpoken.highest;  // the protocol version that the run speaks
};

class MasterCore {
 public:
  explicit MasterCore(Options options);
  // After a restart: continues from the durable records (PROTOCOL.md, section 7).
  // `options.incarnation` must be higher than any before. The first step must follow at once;
  // TimePassed is enough.
  MasterCore(Options options, const RunRecord& remembered);
  ~MasterCore();
  MasterCore(MasterCore&&) noexcept;
  MasterCore& operator=(MasterCore&&) noexcept;

  void step(const Event& event, Instant now, Effects& effects);
  // Number of group visits in all steps so far, repeated visits included: a measure of cost.
  uint64_t groups_looked_at() const;
  // Time of the next TimePassed, if no other event comes before.
  std::optional<Instant> deadline() const;

  // No peer is connected or expected back: only the shared states of the run are left.
  bool idle() const;
  std::vector<SharedStateRecord> shared_states() const;  // the agreed states, by group
  // Some group of the run has had members, before or after the last restart of the master.
  bool founded() const;
  // All verdicts and answers sent so far are confirmed as received, so an embedded master may end.
  bool settled() const;

  // Asserts the invariants of all parts, and between them. Without NDEBUG, step() calls it: after
  // every step while the run is small, else after so many steps that it does not dominate.
  void check() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::master
