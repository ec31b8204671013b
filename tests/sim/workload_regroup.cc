// Reconfigures that keep the run of a Workload: the application makes them between two other calls.

#include <utility>

#include "tests/sim/workload.h"

namespace pccl::sim {

bool Workload::regroup(const protocol::Rendezvous& with, Duration timeout, RegroupOver over) {
  if (joint_ || gone_ || !topology_.generation) return false;
  joint_ = protocol::JointKind::kUpdateTopology;
  joint_handle_ = node_.new_handle();
  joint_since_ = node_.world().event_loop().now();
  waits_since_ = node_.clock();
  regroup_over_ = std::move(over);
  peer::JointCalled call{.handle = joint_handle_, .kind = *joint_, .offer = {}, .timeout = timeout};
  call.rendezvous = with;
  node_.call(std::move(call));
  return true;
}

void Workload::give_up_regroup() {
  PCCL_ASSERT(regroup_over_);
  node_.call(peer::JointGivenUp{joint_handle_});
}

// Members go on with different states: the call has ended a batch of some, and not of others. If
// nothing has changed, the application goes on where it was.
void Workload::after_regroup(const peer::FinishJoint& result) {
  const bool thought = std::exchange(has_thought_, false);
  std::exchange(regroup_over_, nullptr)(result);
  if (gone_ || node_.has_left() || is_out(result.status.code)) return;
  if (result.status.ok() && !result.elsewhere) {
    thinks_ = false;
    diverged_ = true;
    last_success_ = node_.world().event_loop().now();
    return new_generation(*result.topology);
  }
  if (thought) return enter(Stage::kSync);
  if (!thinks_ && (failed_ ? open_.empty() : !waiting())) go_on();
}

}  // namespace pccl::sim
