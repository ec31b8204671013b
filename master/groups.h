// Groups: the peer groups of a run, and which of them a step has to look at. A step costs what it
// touches and not what there is, so that a run with many groups is as fast as one with few. A group
// that may be changed is handed out by touch() or by a walk, which mark it; a const look does not.
// refresh() looks at the marked ones and keeps the index: the groups that have a trait, and the
// deadlines in order. One MasterCore owns it.
// Why a group that was not touched need not be looked at: the work at the end of a step (watching
// newcomers, advancing, hearing what was held, flushing, forgetting) depends on the group alone:
// advance() and flush() know no time, they ask no connection, and the terms of the run that they
// use change only while nobody is in any group. Watching depends on the time, but finds nothing new
// before deadline(). Two things reach beyond a group, and refresh() sees to both: that others wait
// in a joint call of all groups concerns the new groups, and what a group was told before a restart
// concerns the groups it tells of.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "master/group.h"

namespace pccl::master {

class Groups {
 public:
  // A group can have any of these; most are of joint calls, see joint.cc.
  enum class Trait : uint8_t {
    kPeopled,   // somebody is here: member or not
    kNew,       // its members have taken part in nothing yet
    kUnvoted,   // it has members, and not all have voted for update_topology
    kReady,     // all have, and it is not changing: they wait for the other groups
    kAsking,    // all members have voted for are_peers_pending
    kTalking,   // are_peers_pending of the others waits for what it will say
    kAwaiting,  // some members wait in a joint call of all groups, and it is not new
    kTelling,   // it was told of ballots of others before a restart
  };
  static constexpr size_t kTraits = 8;
  struct Summary {
    std::array<bool, kTraits> traits{};
    std::optional<Instant> deadline;
    bool operator==(const Summary&) const = default;
  };

  Groups(Context& context, Connections& connections)
      : context_(context), connections_(connections) {}
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // ---- Reading ----
  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }
  const Group* find(GroupId id) const;  // null if there is none
  const std::map<GroupId, Group>& all() const;

  // ---- Changing ----
  Group& begin(GroupId id);  // it is touched, and made if there is none
  Group& touch(GroupId id);  // REQUIRES: there is one
  // Those whose deadline has come.
  void touch_overdue(Instant now);
  // All of them, in the order of their ids, as the other walks.
  template <typename Work>
  void each(Work work) {
    for (const auto& at : all_) work(touch(at.first));
  }
  // In a quiet step (it changes nothing that others could be waiting for) those touched in it; else
  // those touched since they were last due in a step to its end, and then once more in the next, as
  // what is settled last may have consequences. A group that becomes due further on is included. A
  // visit does not make a group due again: touch it if it was changed.
  template <typename Work>
  void each_due(bool quiet, Work work) {
    const std::set<GroupId>& ids = due(quiet);
    for (auto id = ids.begin(); id != ids.end(); ++id) {
      if (Group* group = visit(*id)) work(*group);
    }
  }
  const std::set<GroupId>& due(bool quiet) const { return quiet ? touched_ : due_; }
  // Forgets the groups due in which nobody and nothing is left.
  void forget(bool quiet);
  // After all of that.
  void end_step(bool quiet);

  // ---- The index, as of the last refresh() ----
  void refresh();
  const std::set<GroupId>& with(Trait trait) const { return with_[static_cast<size_t>(trait)]; }
  std::optional<Instant> deadline() const;  // the first of all groups
  // From scratch, as refresh() keeps it.
  static Summary summary_of(const Group& group);

  // How many groups were looked at so far: what steps have cost.
  uint64_t looked_at() const { return looked_at_; }

 private:
  Group* visit(GroupId id);  // null if it was forgotten
  void renew(GroupId id);
  void touch_those_told_of(const Group& teller);

  Context& context_;
  Connections& connections_;
  std::map<GroupId, Group> all_;
  std::set<GroupId> touched_;  // in this step
  std::set<GroupId> due_;      // all of those, and more: see each_due()
  std::set<GroupId> stale_;    // to be refreshed
  std::map<GroupId, Summary> known_;
  std::array<std::set<GroupId>, kTraits> with_;
  std::set<std::pair<Instant, GroupId>> deadlines_;
  bool awaited_ = false;  // there were groups kAwaiting, at the last refresh
  mutable uint64_t looked_at_ = 0;
};

}  // namespace pccl::master
