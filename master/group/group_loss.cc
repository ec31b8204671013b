// The part of Group for members that leave while the epoch goes on, and for its joint calls then
// and when an epoch ends. update_topology goes on by itself.
//   the epoch continues           the members vote again, and the call goes on
//   members have left             sync_shared_state ends, unless its answer is on its way;
//                                 are_peers_pending is answered if all have asked it; every other
//                                 call fails
//   a loss broke the group        sync_shared_state goes on if all survivors have voted for it and
//                                 an epoch continues; are_peers_pending is answered if all have
//                                 asked it; every other call fails. An optimize_topology that goes
//                                 on keeps what it has measured

#include <algorithm>

#include "master/group/group.h"

namespace pccl::master {

using protocol::Answer;
using protocol::JointKind;

// The program of a fixed world ends rank by rank, so that this is no loss: the epoch goes on.
// Joint calls are as after a loss, because all members have to make them.
void Group::leave_without_end(PeerId peer) {
  const std::string why = membership_.describe(peer) + " has left (destroy_process_group)";
  const auto& members = membership_.members();
  const bool linked_with_all = std::all_of(members.begin(), members.end(), [&](PeerId other) {
    return other == peer || membership_.links.linked(peer, other);
  });
  const protocol::Member member = remove_member(peer, why, LogLevel::kInfo);
  epochs_.leave(member, why);
  after_removal(peer);
  if (!has_members()) return;
  left_.insert(peer);
  close_posting_of_voters();
  if (!linked_with_all) lose_data_of(peer);
}

// Data that was on its way from a member that has left may be lost with the link.
void Group::lose_data_of(PeerId left) {
  epochs_.cut_off(left);
  forget_left();
}

// An update_topology that has to leave out members is sure to change the group. So a voter can wait
// for no operation of others, and they need not wait for its calls.
void Group::close_posting_of_voters() {
  for (const PeerId member : membership_.members()) {
    if (ballot_.is_open(member, JointKind::kUpdateTopology)) epochs_.close_posting(member);
  }
}

// A sync_shared_state that all survivors have voted for goes on, in a broken group too.
void Group::reconfigured() {
  const bool syncs = ballot_.is_complete(JointKind::kSyncSharedState);
  if (epochs_.broken() && syncs) {
    ballot_.break_up(ballot_.vote(membership_.members()[0]).number);
  } else if (epochs_.broken()) {
    break_up();
  }
  PCCL_ASSERT(ballot_.size() == membership_.members().size());
  ballot_.reconfigure(membership_.members(), membership_.rank_names());
  agreement_.interrupt(epochs_.last_losses());
}

// update_topology is the only joint call that can begin, and a sync_shared_state can only go on.
// are_peers_pending can be answered with true.
void Group::break_up() {
  PCCL_ASSERT((epochs_.broken() || epochs_.goes_on_without_some()) && has_members());
  const bool all_ask = ballot_.is_complete(JointKind::kArePeersPending);
  ballot_.break_up();
  Answer answer;
  if (all_ask) {
    answer.pending = true;
    return this->answer(answer);
  }
  answer.code = epochs_.end_status().code;
  answer.text = epochs_.end_status().message;
  for (auto& [peer, own] : ballot_.settle_others(JointKind::kUpdateTopology, answer)) {
    membership_.joint_call_ended(peer, own.code, context_.now);
    connections_.send(peer, std::move(own));
  }
  agreement_.cancel();
  optimization_.cancel();
  gave_up_sync_ = false;
}

}  // namespace pccl::master
