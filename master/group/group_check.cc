#include "csrc/base/assert.h"
#include "master/group/group.h"

namespace pccl::master {

using protocol::JointKind;

void Group::check() const {
  membership_.check();
  present_.check();
  epochs_.check();
  ballot_.check();
  agreement_.check();
  optimization_.check();
  overdue_.check();
  cycle_watch_.check();
  notices_.check();
  announced_.check();
  regrouping_.check();
  for (const auto& [peer, about] : membership_.peers()) check_peer(peer, about);
  check_votes();
  check_nothing_is_due();
  held_.check();
  PCCL_ASSERT(held_.empty() || epochs_.recovering() || deciding());
  for (const PeerId peer : held_.senders()) {
    PCCL_ASSERT(membership_.is_member(peer) && membership_.find(peer)->connected);
  }
  for (const PeerId peer : left_) {
    PCCL_ASSERT(membership_.find(peer) == nullptr && present_.needs(peer));
  }
}

void Group::check_peer(PeerId peer, const Membership::Peer& about) const {
  const auto group = context_.group_of.find(peer);
  PCCL_ASSERT(group != context_.group_of.end() && group->second == id_);
  PCCL_ASSERT(about.connected == connections_.connected(peer));
  if (!about.connected) return;
  const Connections::Connection& connection = *connections_.find(connections_.of(peer));
  PCCL_ASSERT(connection.group == id_);
  const bool registered = about.order != 0;
  PCCL_ASSERT(connection.phase == (membership_.is_member(peer) ? ConnectionPhase::kMember
                                   : registered                ? ConnectionPhase::kRegistered
                                                               : ConnectionPhase::kWelcomed));
}

void Group::check_nothing_is_due() const {
  const bool all_sync = ballot_.is_complete(JointKind::kSyncSharedState);
  const bool all_update = ballot_.is_complete(JointKind::kUpdateTopology);
  switch (epochs_.phase()) {
    case Epochs::Phase::kActive:
      PCCL_ASSERT(!all_sync || !agreement_.idle());
      PCCL_ASSERT(!all_update || !epochs_.changing());
      PCCL_ASSERT(!ballot_.is_complete(JointKind::kOptimizeTopology) || optimization_.under_way());
      break;
    case Epochs::Phase::kDraining:
      PCCL_ASSERT(!present_.operations().drained() || epochs_.waits_for_peers());
      break;
    case Epochs::Phase::kFreezing:
      PCCL_ASSERT(epochs_.awaits_reports() || agreement_.recording());
      break;
    case Epochs::Phase::kRecovering: PCCL_ASSERT(epochs_.awaits_members()); break;
    case Epochs::Phase::kFounding:
    case Epochs::Phase::kStarting:
    case Epochs::Phase::kEnding:
    case Epochs::Phase::kBroken: break;
  }
}

void Group::check_votes() const {
  const auto& members = membership_.members();
  PCCL_ASSERT(ballot_.size() == (epochs_.recovering() ? 0 : members.size()));
  if (epochs_.recovering()) return;
  for (const PeerId member : members) {
    PCCL_ASSERT(ballot_.is_voter(member, *membership_.rank(member)));
    if (ballot_.has_voted(member)) PCCL_ASSERT(ballot_.vote(member).epoch == present_.number());
  }
  const Epochs::Phase phase = epochs_.phase();
  if (phase == Epochs::Phase::kDraining) {
    PCCL_ASSERT(regrouping_.under_way() || ballot_.is_complete(JointKind::kUpdateTopology));
  }
  if (optimization_.under_way()) PCCL_ASSERT(ballot_.is_complete(JointKind::kOptimizeTopology));
  const bool syncs = agreement_.recording() || phase == Epochs::Phase::kActive;
  if (syncs && agreement_.for_voters()) {
    PCCL_ASSERT(ballot_.is_complete(JointKind::kSyncSharedState));
  }
}

}  // namespace pccl::master
