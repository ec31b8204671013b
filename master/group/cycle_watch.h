// CycleWatch: keeps the calls in which the members of a group block, as they report them (Blocked),
// and watches for cycles of such waits (wait_cycle.h). It decides when a cycle has stood for long
// enough to be an error, or a warning if a member may continue by itself. Group owns one, and
// carries this out. It is pure: time comes from the Context of the step.
// Only members of one group are compared. These members count as members that do not block: one
// that is not connected, since its report may be outdated; a newcomer, whose mistakes are its own
// (overdue_members.h); one that is in a joint call while a peer is pending.
// Invariants:
//   1. A report belongs to a member of the group that is connected.
//   2. Each cycle is due at most once. A cycle that is not due yet has a deadline.
//   3. No two cycles have a common rank.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "csrc/base/clock.h"
#include "master/group/group_view.h"
#include "master/group/wait_cycle.h"

namespace pccl::master {

class CycleWatch {
 public:
  struct Cycle {
    WaitCycle links;
    Instant since;                          // the time when it was found
    bool certain = false;                   // no rank of it can continue by itself
    bool threads = false;                   // several threads of one of its ranks have made calls
    bool due = false;                       // look() has returned it
    std::vector<OpKey> operations() const;  // in which its ranks wait
  };

  explicit CycleWatch(const GroupView& view) : view_(view) {}

  // ---- What changes the facts ----
  void told(PeerId member, const protocol::Blocked& report);  // REQUIRES: it is connected
  void forget(PeerId member);  // its connection has closed, or it is no member any more
  // Calls and membership may have changed.
  void set_changed() { changed_ = !told_.empty(); }
  // Nothing could be received for a while: each cycle has to stand for the whole time again.
  void excuse_all();

  // Returns the cycles that are due now.
  std::vector<Cycle> look();
  std::optional<Instant> deadline() const;  // of the next look, if nothing changes before

  // The cycles as of the last look.
  const std::vector<Cycle>& cycles() const { return cycles_; }
  // Asserts the invariants.
  void check() const;

 private:
  std::optional<BlockedRank> blocked(PeerId member, const protocol::Blocked& report) const;
  std::vector<Cycle> find() const;
  bool joint_calls_count() const;
  Instant due_at(const Cycle& cycle) const;

  const GroupView& view_;
  std::map<PeerId, protocol::Blocked> told_;  // of the members that block
  std::vector<Cycle> cycles_;
  bool changed_ = false;  // the facts may have changed since the last look
};

}  // namespace pccl::master
