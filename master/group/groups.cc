#include "master/group/groups.h"

#include "csrc/base/assert.h"

namespace pccl::master {

using protocol::JointKind;

const Group* Groups::find(GroupId id) const {
  ++looked_at_;
  const auto at = all_.find(id);
  return at == all_.end() ? nullptr : &at->second;
}

const std::map<GroupId, Group>& Groups::all() const {
  looked_at_ += all_.size();
  return all_;
}

Group& Groups::begin(GroupId id) {
  all_.try_emplace(id, id, context_, connections_);
  return touch(id);
}

Group& Groups::touch(GroupId id) {
  Group* const group = visit(id);
  PCCL_ASSERT(group != nullptr);
  touched_.insert(id);
  due_.insert(id);
  return *group;
}

Group* Groups::visit(GroupId id) {
  ++looked_at_;
  const auto at = all_.find(id);
  if (at == all_.end()) return nullptr;
  stale_.insert(id);
  return &at->second;
}

void Groups::touch_overdue(Instant now) {
  for (const auto& [at, id] : deadlines_) {
    if (at > now) return;
    touch(id);
  }
}

void Groups::forget(bool quiet) {
  for (const GroupId id : due(quiet)) {
    const Group* group = find(id);
    if (group == nullptr || !group->view().is_forgettable()) continue;
    PCCL_ASSERT(group->held_bytes() == 0 && !group->view().ballot.kind());
    for (const auto& gone : group->view().membership.gone()) context_.group_of.erase(gone.peer);
    all_.erase(id);
    stale_.insert(id);
  }
}

// The refresh at the end may touch groups. The next step visits them.
void Groups::end_step(bool quiet) {
  PCCL_ASSERT(touched_.size() <= due_.size());
  if (!quiet) due_ = std::move(touched_);
  touched_.clear();
  refresh();
}

// ---- The index ----

Groups::Summary Groups::summary_of(const Group& group) {
  const auto kind = group.view().ballot.kind();
  const bool voted = kind && group.view().has_voted(*kind);
  const bool votes_update = voted && *kind == JointKind::kUpdateTopology;
  const bool votes_pending = voted && *kind == JointKind::kArePeersPending;
  const bool members = group.view().has_members(), changing = group.view().epochs.changing();
  const bool waits_for_update = votes_update && !changing;
  const bool waits = kind && is_of_all_groups(*kind) && !changing;
  Summary summary;
  const auto set = [&](Trait trait, bool has) { summary.traits[static_cast<size_t>(trait)] = has; };
  set(Trait::kPeopled, !group.view().membership.empty());
  set(Trait::kNew, members && group.view().is_new());
  set(Trait::kUnvoted, members && !votes_update);
  set(Trait::kReady, members && waits_for_update);
  set(Trait::kAsking, votes_pending);
  // False if the group does nothing more before its topology is updated.
  const bool to_say = members && !group.view().epochs.needs_reconfiguration() && !waits_for_update;
  set(Trait::kTalking, to_say && !votes_pending);
  set(Trait::kAwaiting, members && waits && !group.view().is_new());
  set(Trait::kAnnouncing, !group.announced().empty());
  summary.deadline = group.deadline();
  return summary;
}

void Groups::reconfigure(GroupId id) {
  const Group* group = find(id);
  const Summary now = group == nullptr ? Summary{} : summary_of(*group);
  Summary& known = known_[id];
  for (size_t i = 0; i < kTraits; ++i) {
    if (now.traits[i] == known.traits[i]) continue;
    const size_t changed = now.traits[i] ? with_[i].insert(id).second : with_[i].erase(id);
    PCCL_ASSERT(changed == 1);
  }
  if (now.deadline != known.deadline) {
    const bool gone = !known.deadline || deadlines_.erase({*known.deadline, id}) == 1;
    const bool fresh = !now.deadline || deadlines_.insert({*now.deadline, id}).second;
    PCCL_ASSERT(gone && fresh);
  }
  const auto announces = static_cast<size_t>(Trait::kAnnouncing);
  const bool announces_anew = now.traits[announces] && !known.traits[announces];
  known = now;
  if (group == nullptr) known_.erase(id);
  PCCL_ASSERT(known_.size() <= all_.size() + stale_.size());
  if (announces_anew) touch_announced(*group);
}

// Touches the groups whose ballots `announcer` has answers to: they may not have been touched since
// they began to wait. An announcer learns all its answers at once, when its members have been
// recovered after a restart.
void Groups::touch_announced(const Group& announcer) {
  for (const GroupId id : announcer.announced().groups()) {
    PCCL_ASSERT(id != announcer.id());
    const Group* other = find(id);
    const auto kind = other == nullptr ? std::nullopt : other->view().ballot.kind();
    if (kind && other->view().has_voted(*kind) && announcer.announced_of(*other)) touch(id);
  }
}

void Groups::refresh() {
  while (!stale_.empty()) {
    while (!stale_.empty()) reconfigure(stale_.extract(stale_.begin()).value());
    const bool awaited = !with(Trait::kAwaiting).empty();
    if (awaited == awaited_) continue;
    awaited_ = awaited;
    for (const GroupId id : with(Trait::kNew)) touch(id);
  }
}

std::optional<Instant> Groups::deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

// ---- Invariants ----

void Groups::check() const {
  size_t found_by_id = 0, connected = 0, held_bytes = 0;
  for (const auto& [id, group] : all_) {
    PCCL_ASSERT(group.id() == id);
    group.check();
    const auto& peers = group.view().membership.peers();
    found_by_id += peers.size() + group.view().membership.gone().size();
    for (const auto& [peer, about] : peers) connected += about.connected ? 1 : 0;
    held_bytes += group.held_bytes();
  }
  PCCL_ASSERT(found_by_id == context_.group_of.size());
  PCCL_ASSERT(connected == connections_.assigned());
  PCCL_ASSERT(held_bytes == context_.held_bytes && held_bytes <= protocol::kHeldBytesMax);
  check_index();
}

size_t Groups::weight() const {
  size_t weight = 0;
  for (const auto& [id, group] : all_) weight += 1 + group.view().present.weight();
  return weight;
}

void Groups::check_index() const {
  PCCL_ASSERT(stale_.empty() && known_.size() == all_.size());
  std::array<size_t, kTraits> counts{};
  size_t deadlines = 0;
  for (const auto& [id, group] : all_) {
    const auto known = known_.find(id);
    PCCL_ASSERT(known != known_.end() && known->second == summary_of(group));
    for (size_t i = 0; i < kTraits; ++i) {
      if (!known->second.traits[i]) continue;
      PCCL_ASSERT(with_[i].contains(id));
      ++counts[i];
    }
    if (!known->second.deadline) continue;
    PCCL_ASSERT(deadlines_.contains({*known->second.deadline, id}));
    PCCL_ASSERT(*known->second.deadline > context_.now);
    ++deadlines;
  }
  for (size_t i = 0; i < kTraits; ++i) PCCL_ASSERT(counts[i] == with_[i].size());
  PCCL_ASSERT(deadlines == deadlines_.size());
  PCCL_ASSERT(awaited_ == !with(Trait::kAwaiting).empty());
  for (const GroupId id : touched_) PCCL_ASSERT(due_.contains(id));
  PCCL_ASSERT(with(Trait::kReady).empty() || !with(Trait::kUnvoted).empty());
  PCCL_ASSERT(with(Trait::kAsking).empty() || !with(Trait::kTalking).empty());
}

}  // namespace pccl::master
