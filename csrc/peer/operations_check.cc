// Asserts the invariants of Operations (operations.h). The simulator calls it after every step.

#include "csrc/base/assert.h"
#include "csrc/peer/operations.h"

namespace pccl::peer {

using State = Operation::State;

void Operations::check() const {
  PCCL_ASSERT(generation_ == membership_.generation());
  PCCL_ASSERT(verdicts_epoch_ == membership_.epoch());
  PCCL_ASSERT(closed_ || held_.empty());
  any_source_.check();
  PCCL_ASSERT(open_.size() + held_.size() + any_source_.size() <= protocol::kOpsOpenMax);
  size_t tag_bytes = 0, deadlines = 0, restarts = 0;
  for (const CalledOp& call : held_) tag_bytes += protocol::carried_bytes(call.info);
  for (const auto& [key, op] : open_) {
    check(key, op);
    tag_bytes += protocol::carried_bytes(op.info);
    if (op.state == State::kRestart && drains_.contains(op.ended_in, key)) ++restarts;
    if (!op.deadline) continue;
    ++deadlines;
    PCCL_ASSERT(deadlines_.contains({*op.deadline, key}));
  }
  PCCL_ASSERT(tag_bytes_ == tag_bytes);
  PCCL_ASSERT(tag_bytes + any_source_.tag_bytes() <= protocol::kCarriedBytesMax);
  PCCL_ASSERT(deadlines_.size() == deadlines);
  for (const auto& [handle, key] : parked_) {
    const Operation& op = open_.at(key);
    PCCL_ASSERT(op.handle == handle && !op.started && op.parts.empty());
  }
  for (const auto& [id, drain] : drains_.all()) {
    const auto& [epoch, key] = id;
    PCCL_ASSERT(epoch && epoch <= membership_.epoch() && drain.left >= 1);
    if (!drain.outcome) {
      PCCL_ASSERT(restarts-- > 0);
      PCCL_ASSERT(open_.at(key).ended_in == epoch && open_.at(key).handle == drain.handle);
    } else if (epoch >= membership_.generation()) {
      PCCL_ASSERT(!open_.contains(key));
    }
  }
  PCCL_ASSERT(restarts == 0);
  PCCL_ASSERT(asked_.size() <= protocol::kOpsOpenMax);
  for (const auto& [key, request] : asked_) {
    const auto at = open_.find(key);
    PCCL_ASSERT(at == open_.end() ? !was_called(key) : !at->second.begun);
  }
  verdicts_.check();
  for (const auto& [op, verdict] : verdicts_.early()) {
    PCCL_ASSERT(!was_called(op));
  }
}

void Operations::check(OpKey key, const Operation& op) const {
  PCCL_ASSERT(was_called(key));
  op.check(membership_);
  PCCL_ASSERT(op.state != State::kRestart || membership_.frozen() ||
              drains_.contains(op.ended_in, key));
  const bool waits = op.request || parked_.contains(op.handle);
  PCCL_ASSERT(op.state != State::kRunning || op.started != waits);
}

}  // namespace pccl::peer
