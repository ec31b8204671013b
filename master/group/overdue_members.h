// OverdueMembers: finds members that do not make a call while others wait for this call
// (PROTOCOL.md, section 2). The limit is first_call_timeout for a newcomer, and call_timeout for
// any other member, if the run has one. While a newcomer to the shared state fetches it,
// first_call_timeout limits the time in which no data arrives: a slow download is no mistake. Group
// owns one, and removes the members that this class returns. It is pure. It does not look for
// mistakes in a call: the ballot, the election and the operations find these.
// Invariants:
// 1. A newcomer to the shared state is a member.
// 2. The invariants of Probation, for each limit.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "master/group/group_view.h"
#include "master/group/probation.h"

namespace pccl::master {

class OverdueMembers {
 public:
  explicit OverdueMembers(const GroupView& view) : view_(view) {}

  // Returns the overdue newcomers. `awaited_by_others`: the result of awaited_by_others() in
  // joint.h; empty if no other group waits.
  std::vector<Misfit> overdue_newcomers(const std::string& awaited_by_others);
  // Returns the overdue members that are no newcomers, while most of the rest wait for them.
  std::vector<Misfit> late_members();
  // Returns the members that do not answer a freeze request or an abort proposal for two
  // peer_timeouts, although they send other messages. An honest peer answers at once.
  std::vector<Misfit> unanswering_members();

  void called(PeerId member) { lateness_.restart(member); }
  // The member has succeeded in something, or receives data: for its next call it gets the full
  // time again.
  void took_part(PeerId member) { probation_.restart(member); }
  // This process could not receive for a while: all members get their full time again.
  void excuse_all();
  void lose(PeerId member) { new_to_sync_.erase(member); }

  // A newcomer to the group, or to its shared state.
  bool is_new_to_sync(PeerId peer) const;
  // A sync_shared_state elects a state: other members were trained in this group, and this member
  // was not.
  void add_new_to_sync(PeerId member);
  bool was_new_to_sync(PeerId member) const { return new_to_sync_.contains(member); }
  // A sync_shared_state has succeeded: no member is a newcomer to the state any more. Only a
  // success ends that.
  void synced() { new_to_sync_.clear(); }

  std::optional<Instant> deadline() const;  // the time when to look next
  // Asserts the invariants.
  void check() const;

 private:
  using Seen = Probation::Seen;
  std::vector<Seen> see_newcomers(const std::string& awaited_by_others) const;
  Seen see_newcomer(PeerId newcomer) const;
  bool others_wait() const;
  void see_fetching(std::vector<Seen>& all) const;
  bool may_be_seen_fetching() const;
  std::vector<Seen> see_late_members() const;
  std::optional<Seen> see_late(PeerId peer, const std::vector<PeerId>& members) const;

  const GroupView& view_;
  Probation probation_{"PCCL_FIRST_CALL_TIMEOUT"};  // for newcomers
  Probation lateness_{"PCCL_CALL_TIMEOUT"};         // for the other members
  Probation answers_{"PCCL_PEER_TIMEOUT"};          // for all members
  std::set<PeerId> new_to_sync_;
};

}  // namespace pccl::master
