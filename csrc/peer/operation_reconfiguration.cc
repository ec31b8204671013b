// The part of Operations for a generation that continues in another epoch: the operations that are
// drained and begin again, and their kept parts.

#include <algorithm>

#include "csrc/peer/operation.h"
#include "csrc/peer/request.h"

namespace pccl::peer {

using protocol::OpKind;

void Operations::add_part(Op& op, uint64_t end) const {
  PCCL_ASSERT(end <= op.info.count && (op.parts.empty() || op.parts.back().end <= end));
  Part part{end, present(op.absent_ranks, membership_)};
  const bool same = !op.parts.empty() && op.parts.back().contributors == part.contributors;
  if (same) op.parts.pop_back();
  op.parts.push_back(std::move(part));
}

void Operations::repeat_later(OpKey key, Op& op, uint64_t kept) {
  if (op.state == State::kRestart) return;
  PCCL_ASSERT(!op.returned && op.info.start <= kept && kept <= op.info.count);
  PCCL_ASSERT(op.started || kept == op.info.start);
  if (op.started) {
    const bool overwrites = op.info.kind == OpKind::kAllReduce ||
                            (op.info.kind == OpKind::kReduce && op.info.root == membership_.self());
    const bool spoiled = overwrites && !context_.options.restore;
    if (spoiled && !op.request) {
      op.request =
          abort_request(key, Code::kPeerLost,
                        name(op.info, key, membership_) + " was interrupted on rank " +
                            std::to_string(membership_.topology().rank) +
                            ", which does not restore tensors (PCCL_RESTORE=off): nothing is left "
                            "to repeat it with");
    }
    op.ended_in = membership_.epoch();
    drain(op.ended_in, key, {op.handle, {}, true});
    const uint64_t more = kept - op.info.start;
    context_.emit(EndOp{key, Ending::kRestart, more});
    if (more > 0) add_part(op, kept);
    op.info.start = kept;
  }
  op.begun = op.started = false;
  if (op.state == State::kRunning) enter(op, State::kFrozen);  // without a freeze request
  enter(op, State::kRestart);
}

// In the order of the calls, because on a link the older operation has priority.
void Operations::reconfigure() {
  PCCL_ASSERT(!membership_.frozen() && verdicts_epoch_ < membership_.epoch());
  verdicts_.begin_epoch();
  verdicts_epoch_ = membership_.epoch();
  std::vector<OpKey> keys;
  for (const auto& [key, op] : open_) keys.push_back(key);
  std::sort(keys.begin(), keys.end(),
            [this](OpKey a, OpKey b) { return open_.at(a).handle < open_.at(b).handle; });
  const bool changed = membership_.members_since() == membership_.epoch();
  for (const OpKey key : keys) {
    if (changed) recheck(key);
    if (open_.contains(key)) restart(key);
  }
  end_any_source();
  any_source_.ask_again();
}

// Called after a loss within the generation. An operation that no longer means the same ends.
void Operations::recheck(OpKey key) {
  const auto at = open_.find(key);
  PCCL_ASSERT(at != open_.end() && !at->second.begun);
  const Status changed = check_after_change(at->second.info, membership_);
  if (changed.ok() || at->second.request) return;
  if (at->second.info.kind == OpKind::kSend) {  // no other member counts it
    abort(at, changed);
  } else {
    at->second.request = abort_request(key, changed.code, changed.message);
  }
}

void Operations::restart(OpKey key) {
  Op& op = open_.at(key);
  PCCL_ASSERT(op.state == State::kRestart || op.state == State::kFrozen);
  const bool drains = draining_.contains({op.ended_in, key});
  if (!membership_.frozen() && !drains) begin(key, op);
}

bool Operations::reconfigured() const {
  return std::all_of(open_.begin(), open_.end(), [](const auto& at) { return at.second.begun; });
}

}  // namespace pccl::peer
