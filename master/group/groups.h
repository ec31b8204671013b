// Groups: the peer groups of a run, and the choice of groups that a step has to visit. A step costs
// only as much as the groups that it visits, so a run with many groups is as fast as one with few.
// The MasterCore owns it.
// A group that may change is handed out by touch() or by a walk, and both mark it; const access
// does not mark it. refresh() visits the marked groups and updates the index: the groups with each
// trait, and the deadlines in order.
// A group that was not touched need not be visited, for these reasons:
// 1. The work at the end of a step (watching members, advancing, processing held messages,
//    flushing, forgetting) depends on the group alone. The decisions of advance() and flush()
//    depend neither on time nor on connections, and the run config that they use changes only
//    while no group has a peer.
// 2. Watching members depends on time, but finds nothing new before deadline().
// 3. Two facts reach beyond a group, and refresh() handles both. If other groups wait in a joint
//    call of all groups, this concerns the new groups. If a group was answered in a ballot before a
//    restart, this concerns the other groups of that ballot.
// Invariants, at the end of a step:
// 1. The index and the group itself agree on the traits and the deadline of the group.
// 2. The index of peers has every peer of a group, and every gone peer that the group remembers,
//    and no others.
// 3. A connection is assigned to a peer if and only if that peer is a connected peer of a group.
// 4. The count of bytes of held messages is the sum over all groups.
// 5. No ballot of all groups is complete, and no deadline has passed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "master/group/group.h"

namespace pccl::master {

class Groups {
 public:
  // Traits of a group; most are about joint calls, see joint.cc.
  enum class Trait : uint8_t {
    kPeopled,     // it has peers, members or not
    kNew,         // its members have taken part in nothing yet
    kUnvoted,     // it has members, and not all have voted for update_topology
    kReady,       // all have voted for it, and it is not changing: it waits for the other groups
    kAsking,      // all members have voted for are_peers_pending
    kTalking,     // it can still act or vote: are_peers_pending of the others waits for it
    kAwaiting,    // some members wait in a joint call of all groups, and it is not new
    kAnnouncing,  // it has answers from before a restart about ballots of other groups
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
  Group& begin(GroupId id);  // touches it; makes it if there is none
  Group& touch(GroupId id);  // REQUIRES: there is one
  // Touches the groups whose deadline has passed.
  void touch_overdue(Instant now);
  // Touches all groups, in the order of their ids. The other walks use the same order.
  template <typename Work>
  void each(Work work) {
    for (const auto& at : all_) work(touch(at.first));
  }
  // Visits each touched group twice. A quiet step (it changes nothing that other groups could wait
  // for) visits the groups touched in this step. Any other step visits the groups touched in it, in
  // the quiet steps before it, and in the last step that was not quiet: the last changes of a step
  // can have consequences, so its groups are visited again. If a group with a higher id becomes due
  // during the walk, the walk reaches it, too. A visit does not make a group due again: touch it if
  // it was changed.
  template <typename Work>
  void each_due(bool quiet, Work work) {
    const std::set<GroupId>& ids = due(quiet);
    for (auto id = ids.begin(); id != ids.end(); ++id) {
      if (Group* group = visit(*id)) work(*group);
    }
  }
  const std::set<GroupId>& due(bool quiet) const { return quiet ? touched_ : due_; }
  // Forgets the due groups that have no peers and nothing to remember.
  void forget(bool quiet);
  // Must be called last in a step.
  void end_step(bool quiet);

  // ---- The index, as of the last refresh() ----
  void refresh();
  const std::set<GroupId>& with(Trait trait) const { return with_[static_cast<size_t>(trait)]; }
  std::optional<Instant> deadline() const;  // the first of all groups
  // Computed from scratch; refresh() keeps the same incrementally.
  static Summary summary_of(const Group& group);

  // Number of group visits so far: the cost of the steps.
  uint64_t looked_at() const { return looked_at_; }
  // Asserts the invariants of all groups, and between them. REQUIRES: the end of a step. Its visits
  // are not counted.
  void check() const;
  // The work of a check(): the number of groups, operations and verdicts.
  size_t weight() const;

 private:
  Group* visit(GroupId id);  // null if it was forgotten
  void reconfigure(GroupId id);
  void touch_announced(const Group& announcer);
  void check_index() const;

  Context& context_;
  Connections& connections_;
  std::map<GroupId, Group> all_;
  std::set<GroupId> touched_;  // in this step
  std::set<GroupId> due_;      // the groups of each_due() in a step that is not quiet
  std::set<GroupId> stale_;    // to be refreshed
  std::map<GroupId, Summary> known_;
  std::array<std::set<GroupId>, kTraits> with_;
  std::set<std::pair<Instant, GroupId>> deadlines_;
  bool awaited_ = false;  // some group was kAwaiting at the last refresh
  mutable uint64_t looked_at_ = 0;
};

}  // namespace pccl::master
