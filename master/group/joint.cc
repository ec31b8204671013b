#include "master/group/joint.h"

#include <algorithm>
#include <optional>
#include <string>

#include "csrc/base/assert.h"
#include "master/group/awaited_calls.h"
#include "master/group/groups.h"
#include "master/group/wait_texts.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using protocol::Answer;
using protocol::JointKind;
using protocol::Settled;
using Phase = Epochs::Phase;
using Trait = Groups::Trait;

// Returns the ballots of these groups, which will be settled together; nothing if there is only one
// ballot. A run has more than kGroupsNamedMax groups only if its journal is older than this limit.
// Then no ballot is named, and a group that does not receive its answer before another restart
// waits for the next ballot of all groups.
std::vector<Settled> ballots(const Groups& groups, const std::set<GroupId>& ids) {
  std::vector<Settled> all;
  for (const GroupId id : ids) {
    const Group* const found = groups.find(id);
    PCCL_ASSERT(found != nullptr);
    const Group& group = *found;
    if (!group.view().epochs.changing()) all.push_back(group.view().settled_ballot());
  }
  if (all.size() == 1 || all.size() > protocol::kGroupsNamedMax) all.clear();
  return all;
}

// Returns the answer to the ballot of group `id`, if another group has it. The ballots of both
// groups were settled together before the restart of the master, so group `id` waits for no other
// group. See Group::announced_of().
std::optional<bool> settled_before(const Groups& groups, GroupId id) {
  for (const GroupId other : groups.with(Trait::kAnnouncing)) {
    if (const auto announced = groups.find(other)->announced_of(*groups.find(id))) return announced;
  }
  return std::nullopt;
}

// The groups among `ids` that may have a new answer from settled_before() since the last step. A
// group is touched when it begins to wait, and when another group gets answers about it.
std::vector<GroupId> may_be_announced(const Groups& groups, const std::set<GroupId>& ids) {
  std::vector<GroupId> some;
  // such groups exist only after a restart
  if (groups.with(Trait::kAnnouncing).empty()) return some;
  for (const GroupId id : groups.due(false)) {
    if (ids.contains(id)) some.push_back(id);
  }
  return some;
}

void settle_update(Groups& groups) {
  groups.refresh();
  const std::set<GroupId>& ready = groups.with(Trait::kReady);
  Answer unchanged;
  const auto settle = [&](GroupId id) {
    Group& group = groups.touch(id);
    PCCL_ASSERT(group.view().has_voted(JointKind::kUpdateTopology) &&
                !group.view().epochs.changing());
    const bool changes = group.view().would_change() || group.finds_better_plan();
    changes ? group.change(unchanged.together) : group.answer(unchanged);
  };
  // All groups have voted for it, or have agreed earlier and are changing.
  if (groups.with(Trait::kUnvoted).empty()) {
    unchanged.together = ballots(groups, ready);
    for (const GroupId id : ready) settle(id);
  } else {
    for (const GroupId id : may_be_announced(groups, ready)) {
      if (settled_before(groups, id)) settle(id);
    }
  }
}

void settle_pending(Groups& groups) {
  groups.refresh();
  const std::set<GroupId>& asking = groups.with(Trait::kAsking);
  bool complete = groups.with(Trait::kTalking).empty(), would_change = false;
  for (const GroupId id : may_be_announced(groups, asking)) {
    const std::optional<bool> before = settled_before(groups, id);
    if (!before) continue;
    Answer same;
    same.pending = *before;
    groups.touch(id).answer(same);
    complete = false;  // the answer was for an earlier ballot, not for the open one
  }
  if (asking.empty() || !complete) return;
  for (const auto& [id, group] : groups.all()) {
    const bool waits = group.view().has_voted(JointKind::kUpdateTopology);
    would_change |= group.view().has_members() && (waits || group.view().would_change());
  }
  Answer answer;
  answer.pending = would_change;
  answer.together = ballots(groups, asking);
  for (const GroupId id : asking) {
    Group& group = groups.touch(id);
    PCCL_ASSERT(group.view().has_voted(JointKind::kArePeersPending));
    group.answer(answer);
  }
}

// Ends the ballot of a group that has agreed on a change.
void give_up_change(Group& group) {
  PCCL_ASSERT(group.view().epochs.changing());
  PCCL_ASSERT(group.view().epochs.phase() != Phase::kStarting);  // the JointAbort was held
  if (!group.view().epochs.waits_for_peers())
    return group.answer(Ballot::timeout(group.view().epochs.waits_for()));
  Answer answer;
  answer.code = Code::kTooFewPeers;
  answer.text = "peer group " + std::to_string(group.id().value) + " has " +
                count_text(group.view().membership.members().size(), "member") +
                " left, min_peers is " + std::to_string(group.view().quorum.min_peers) +
                ", and no newcomer can be admitted: start more peers and call it again";
  group.answer(answer);
}

}  // namespace

void settle_joint_calls(Groups& groups) {
  settle_update(groups);
  settle_pending(groups);
}

std::string awaited_by_others(const Groups& groups) {
  const std::set<GroupId>& awaiting = groups.with(Trait::kAwaiting);
  if (awaiting.empty()) return {};
  const GroupId first = *awaiting.begin();
  const auto kind = groups.find(first)->view().ballot.kind();
  PCCL_ASSERT(kind && is_of_all_groups(*kind));
  return std::string(text(*kind)) + ", for which peer group " + std::to_string(first.value) +
         " waits,";
}

void give_up_joint_call(Groups& groups, Group& group, PeerId peer, uint32_t number) {
  PCCL_ASSERT(group.view().membership.is_member(peer));
  if (!group.view().ballot.is_open(peer, number)) return;  // already answered
  const JointKind kind = group.view().ballot.vote(peer).kind;
  if (group.gives_up_as_newcomer(peer, kind)) return;
  if (!is_of_all_groups(kind)) return group.give_up_call(kind);
  if (group.view().epochs.changing()) return give_up_change(group);
  const std::string missing = absent_text(groups, group, absent_from(groups, kind));
  const Answer answer = Ballot::timeout(missing.empty() ? "" : "it waited for " + missing);
  for (const auto& [id, other] : groups.all()) {
    // The call ends in every group that votes for it. It ends in the caller's own group in any
    // case: the ballot's kind can be that of a newcomer with a lower rank that made a different
    // call.
    const bool waits = &other == &group || other.view().ballot.kind() == kind;
    if (!waits || other.view().epochs.changing()) continue;
    groups.touch(id).answer(answer);
  }
  PCCL_ASSERT(!group.view().ballot.is_open(peer, number));
}

}  // namespace pccl::master
