// StateCall: a sync_shared_state from the side of its voters (PROTOCOL.md, section 5.3): who may
// elect, who is wrong, and what happens if a member gives up. Agreement carries the election out.
// Group owns one, and carries out its rulings.
// Invariant: a member has given up only while the call is open.
#pragma once

#include "master/group/ruling.h"

namespace pccl::master {

class Agreement;
class OverdueMembers;
struct GroupView;

class StateCall {
 public:
  StateCall(const GroupView& view, Agreement& agreement, OverdueMembers& overdue)
      : view_(view), agreement_(agreement), overdue_(overdue) {}

  // All members have voted. Elects a state, or asks for lists of entries first. REQUIRES: the
  // agreement is idle.
  Ruling begin();
  // A member gives up. If only newcomers still fetch, they are removed, and the call continues
  // among the others. Otherwise the call ends for all, unless its answer is on its way.
  Ruling give_up();
  // The call has ended, or was interrupted for good.
  void end() { gave_up_ = false; }

 private:
  bool was_trained_here(PeerId member) const;

  const GroupView& view_;
  Agreement& agreement_;
  OverdueMembers& overdue_;
  bool gave_up_ = false;  // a member has given up this call
};

}  // namespace pccl::master
