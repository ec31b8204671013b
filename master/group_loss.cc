// The part of Group for its joint calls when an epoch ends. update_topology goes on by itself.
//   the epoch continues           the members vote again, and the call goes on
//   a loss broke the group        sync_shared_state goes on if all survivors have voted for it and
//                                 an epoch continues; are_peers_pending is answered if all have
//                                 asked it; every other call fails. An optimize_topology that goes
//                                 on keeps what it has measured

#include "master/group.h"

namespace pccl::master {

using protocol::Answer;
using protocol::JointKind;

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
  PCCL_ASSERT(epochs_.broken() && has_members());
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
    membership_.joint_call_ended(peer, context_.now);
    connections_.send(peer, std::move(own));
  }
  agreement_.cancel();
  optimization_.cancel();
  gave_up_sync_ = false;
}

}  // namespace pccl::master
