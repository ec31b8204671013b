// MasterCore: the state machine of one run at its master. It knows the registered peers, the
// members, the posted operations and their outcomes. PROTOCOL.md is its specification.
// The shell (or the simulator) owns one for each living run and calls it from one thread. It is
// pure: it has no socket, clock or thread. Its parts are the connections, the peer groups, and the
// context that they share.
// Invariants:
// 1. Only step() changes its state, and time enters only through step(). deadline() returns when
//    TimePassed is due.
// 2. No message of a peer can trigger an assertion.
// 3. The run has a configuration, and beats, if and only if some group has peers.
// 4. A limit that was exceeded has ended the run by the end of the step.
// Failure: if a peer sends a forbidden message, its connection is closed (PROTOCOL.md, section 1).
#pragma once

#include <memory>
#include <optional>

#include "master/events.h"

namespace pccl::master {

struct RunView;

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
  // Time of the next TimePassed, if no other event comes before.
  std::optional<Instant> deadline() const;

  // The facts about the run. The view stays valid when this object is moved.
  const RunView& view() const;

  // Asserts the invariants of all parts, and between them. Without NDEBUG, step() calls it: after
  // every step while the run is small, and in a large run so rarely that most of the time is spent
  // on steps.
  void check() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::master
