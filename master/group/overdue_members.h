// OverdueMembers: finds members that make no call while others wait for it (PROTOCOL.md, section
// 2). The limit is first_call_timeout for a newcomer, and call_timeout for any other member, if the
// run has one. A newcomer to the shared state has a limit while it fetches, too: for the arrival of
// data, since a slow download is no mistake. Group owns one, and removes the members that it names.
// It is pure. The ballot, the election and the operations find mistakes in a call.
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

  // The overdue newcomers. `awaited_by_others`: the joint call of all groups that other groups wait
  // in; empty: none.
  std::vector<Misfit> overdue_newcomers(const std::string& awaited_by_others);
  // The other members that are overdue, while most of the rest wait for them.
  std::vector<Misfit> late_members();

  void called(PeerId member) { lateness_.restart(member); }
  // It has succeeded in something, or receives data: its next call gets the full time again.
  void took_part(PeerId member) { probation_.restart(member); }
  // Nothing could be received for a while: all members get their full time again.
  void excuse_all();
  void lose(PeerId member) { new_to_sync_.erase(member); }

  // A newcomer to the group, or to its shared state.
  bool is_new_to_sync(PeerId peer) const;
  // In the election of a sync_shared_state others were trained here, and this member was not.
  void add_new_to_sync(PeerId member);
  bool was_new_to_sync(PeerId member) const { return new_to_sync_.contains(member); }
  // A sync_shared_state has succeeded. Nothing else ends a member's newness to the state.
  void synced() { new_to_sync_.clear(); }

  std::optional<Instant> deadline() const;  // of the next look
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
  Probation probation_{"PCCL_FIRST_CALL_TIMEOUT"};  // of newcomers
  Probation lateness_{"PCCL_CALL_TIMEOUT"};         // of the other members
  std::set<PeerId> new_to_sync_;
};

}  // namespace pccl::master
