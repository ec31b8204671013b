// Asserts the invariants of Operations (operation.h). The simulator calls it after every step.

#include "csrc/base/assert.h"
#include "csrc/peer/operation.h"

namespace pccl::peer {

using protocol::OpKind;

void Operations::check() const {
  PCCL_ASSERT(generation_ == membership_.generation());
  PCCL_ASSERT(verdicts_epoch_ == membership_.epoch());
  PCCL_ASSERT(closed_ || held_.empty());
  any_source_.check();
  PCCL_ASSERT(open_.size() + held_.size() + any_source_.size() <= protocol::kOpsOpenMax);
  size_t tag_bytes = 0, deadlines = 0, restarts = 0, parked = 0;
  for (const CalledOp& call : held_) tag_bytes += protocol::carried_bytes(call.info);
  for (const auto& [key, op] : open_) {
    check(key, op);
    tag_bytes += protocol::carried_bytes(op.info);
    if (op.parked) ++parked;
    if (op.state == State::kRestart && draining_.contains({op.ended_in, key})) ++restarts;
    if (!op.deadline) continue;
    ++deadlines;
    PCCL_ASSERT(deadlines_.contains({*op.deadline, key}));
  }
  PCCL_ASSERT(tag_bytes_ == tag_bytes);
  PCCL_ASSERT(tag_bytes + any_source_.tag_bytes() <= protocol::kCarriedBytesMax);
  PCCL_ASSERT(deadlines_.size() == deadlines && parked_.size() == parked);
  for (const auto& [id, draining] : draining_) {
    const auto& [epoch, key] = id;
    PCCL_ASSERT(epoch && epoch <= membership_.epoch() && draining.left >= 1);
    if (draining.again) {
      PCCL_ASSERT(restarts-- > 0);
      PCCL_ASSERT(open_.at(key).ended_in == epoch && open_.at(key).handle == draining.handle);
    } else if (epoch >= membership_.generation()) {
      PCCL_ASSERT(!open_.contains(key));
    }
  }
  PCCL_ASSERT(restarts == 0);
  verdicts_.check();
  for (const auto& [op, verdict] : verdicts_.early()) {
    const auto next = next_.find(op.tag);
    PCCL_ASSERT(next == next_.end() || op.sequence >= next->second);  // not called yet
  }
}

void Operations::check(OpKey key, const Op& op) const {
  const auto next = next_.find(key.tag);
  PCCL_ASSERT(next != next_.end() && key.sequence < next->second);
  const bool barrier = op.info.kind == OpKind::kBarrier;
  switch (op.state) {
    case State::kRunning:
      PCCL_ASSERT(op.begun && !membership_.frozen());
      PCCL_ASSERT(op.started != op.request.has_value());
      break;
    case State::kDone:
      PCCL_ASSERT(op.begun && op.started != barrier);
      PCCL_ASSERT(!barrier || !membership_.frozen());
      break;
    case State::kFrozen: PCCL_ASSERT(membership_.frozen() || (op.begun && op.request)); break;
    case State::kRestart:
      PCCL_ASSERT(!op.begun);
      PCCL_ASSERT(membership_.frozen() || draining_.contains({op.ended_in, key}));
      break;
    case State::kCalled:
    case State::kSettled: PCCL_ASSERT(false);  // only within a step
  }
  PCCL_ASSERT(op.begun || !op.started);
  PCCL_ASSERT(!op.parked || parked_.at(op.handle) == key);
  PCCL_ASSERT(!membership_.ended() || !op.begun);
  PCCL_ASSERT(!op.returned || (op.state == State::kDone && !op.deadline));
  PCCL_ASSERT(!op.begun || op.info.world_size == membership_.world_size());
  PCCL_ASSERT(op.info.start == 0 || (op.info.keep && op.info.kind == OpKind::kAllReduce));
  PCCL_ASSERT(op.info.start <= op.info.count);
  PCCL_ASSERT(op.returned || op.info.start == (op.parts.empty() ? 0 : op.parts.back().end));
  PCCL_ASSERT(!op.begun || (op.info.start <= op.finished && op.finished <= op.info.count));
}

}  // namespace pccl::peer
