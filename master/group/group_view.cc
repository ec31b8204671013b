#include "master/group/group_view.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "master/context.h"
#include "master/epochs/epochs.h"
#include "master/epochs/operation_waits.h"
#include "master/group/ballot.h"
#include "master/members/membership.h"
#include "master/state/agreement.h"

namespace pccl::master {

bool GroupView::has_members() const { return !membership.members().empty(); }

bool GroupView::is_new() const {
  return membership.highest_standing() == protocol::Standing::kNone;
}

bool GroupView::has_voted(protocol::JointKind kind) const {
  return ballot.is_complete(kind) && !epochs.losing();
}

bool GroupView::is_deserted() const { return membership.empty() && !agreement.recording(); }

bool GroupView::is_forgettable() const { return is_deserted() && !agreement.recorded(); }

bool GroupView::is_in_joint_call(PeerId member) const {
  return ballot.size() > 0 && ballot.has_voted(member);
}

bool GroupView::can_call() const {
  const Epochs::Phase phase = epochs.phase();
  return phase == Epochs::Phase::kActive || phase == Epochs::Phase::kBroken;
}

bool GroupView::waits_in_joint_call(PeerId member) const {
  if (!is_in_joint_call(member)) return false;
  return !agreement.decided() || !ballot.vote(member).background ||
         agreement.fetching().contains(member);
}

bool GroupView::is_in_call(PeerId member) const {
  if (waits_in_joint_call(member)) return true;
  if (epochs.phase() != Epochs::Phase::kActive) return false;
  const OperationWaits waits = present.waits();
  return waits.is_in_any(member) || (!epochs.broken() && waits.is_to_repeat(member));
}

bool GroupView::is_in_last_call(PeerId member) const {
  const LastCall& last = membership.find(member)->last_call;
  if (std::holds_alternative<LastCall::AnySend>(last.call))
    return present.waits().asks_for_sends(member);
  const auto* op = std::get_if<LastCall::Operation>(&last.call);
  return op != nullptr ? present.waits().is_in(member, op->key) : is_in_joint_call(member);
}

bool GroupView::blocks_others(PeerId member) const {
  const LastCall& last = membership.find(member)->last_call;
  if (!is_in_last_call(member) && !gave_up_lately(last, context.now)) return false;
  const auto* op = std::get_if<LastCall::Operation>(&last.call);
  if (op == nullptr) return std::holds_alternative<protocol::JointKind>(last.call);
  const auto& members = membership.members();
  return std::any_of(members.begin(), members.end(), [&](PeerId other) {
    return is_in_joint_call(other) && present.waits().awaits(other, op->key);
  });
}

Delay GroupView::delay_of(PeerId peer) const {
  PCCL_ASSERT(!membership.is_member(peer));
  if (!membership.obstacle(peer, Membership::Reader::kStranger).empty()) return Delay::kObstacle;
  const auto& members = membership.members();
  const bool all_away = std::none_of(members.begin(), members.end(), [this](PeerId member) {
    return membership.find(member)->connected;
  });
  if (has_members() && all_away) return Delay::kMembersAway;
  const int waited = membership.find(peer)->waiting_ticks;
  if (waited < protocol::kTicksPerTimeout) return Delay::kNone;
  // No reason yet: the obstacle will be known as soon as the attempts to connect have failed.
  const bool soon = waited < 2 * protocol::kTicksPerTimeout && membership.is_being_dialled(peer);
  const bool enough = has_members() || membership.waiting().size() >= quorum.founders;
  if (soon && enough) return Delay::kNone;
  if (!has_members()) return enough ? Delay::kUnlinkedPeers : Delay::kTooFewPeers;
  const auto pending = membership.pending(protocol::kMembersMax);
  const bool is_pending = std::find(pending.begin(), pending.end(), peer) != pending.end();
  return is_pending ? Delay::kNoUpdate : Delay::kUnlinkedMembers;
}

bool GroupView::is_busy() const {
  const auto& peers = membership.peers();
  return std::any_of(peers.begin(), peers.end(), [this](const auto& at) {
    return !membership.is_member(at.first) || is_in_call(at.first);
  });
}

bool GroupView::would_change() const {
  PCCL_ASSERT(membership.members().size() <= protocol::kMembersMax);
  const size_t room = protocol::kMembersMax - membership.members().size();
  return epochs.needs_reconfiguration() || !membership.pending(room).empty();
}

protocol::Settled GroupView::settled_ballot() const {
  PCCL_ASSERT(ballot.is_complete());
  const PeerId first = membership.members()[0];
  const PeerId voter = epochs.broken() ? first : PeerId{};
  return {id, present.start().generation, voter, ballot.vote(first).number};
}

bool GroupView::votes_in(const protocol::Settled& settled) const {
  if (settled.group != id || settled.generation != present.start().generation) return false;
  if (settled.voter && !membership.is_member(settled.voter)) return false;
  const auto& members = membership.members();
  return std::all_of(members.begin(), members.end(), [&](PeerId member) {
    return (settled.voter && member != settled.voter) || ballot.is_open(member, settled.number);
  });
}

bool GroupView::is_settled() const {
  const Epochs::Phase phase = epochs.phase();
  const bool deciding = phase == Epochs::Phase::kStarting || phase == Epochs::Phase::kFreezing ||
                        phase == Epochs::Phase::kEnding || phase == Epochs::Phase::kRecovering;
  const auto& peers = membership.peers();
  return !deciding && !agreement.recording() &&
         std::all_of(peers.begin(), peers.end(),
                     [](const auto& at) { return at.second.connected; });
}

}  // namespace pccl::master
