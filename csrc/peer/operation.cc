#include "csrc/peer/operation.h"

#include "csrc/base/assert.h"
#include "csrc/base/transitions.h"
#include "csrc/peer/request.h"

namespace pccl::peer {

using protocol::OpKind;

namespace {

using OperationState = Operation::State;

const char* name_of(OperationState state) {
  switch (state) {
    case OperationState::kCalled: return "called";
    case OperationState::kRunning: return "running";
    case OperationState::kDone: return "done";
    case OperationState::kFrozen: return "frozen";
    case OperationState::kRestart: return "restarting";
    case OperationState::kSettled: return "settled";
  }
  return "unknown";
}

// A call is held while a call of update_topology or optimize_topology is open, and becomes an
// operation after that. If the verdict of a call is already here, or the group is broken, the call
// is finished at once and never becomes an operation. A transfer that completes while its operation
// is frozen, or is settled and being drained, changes nothing.
const Transitions<OperationState, 13> kOperationTransitions(
    "an operation of a peer", name_of,
    {{OperationState::kCalled, OperationState::kRunning, "the epoch is not ending",
      "Begin, and StartOp once its data is staged; AbortRequest instead if there is a reason"},
     {OperationState::kCalled, OperationState::kFrozen, "the epoch is ending"},
     {OperationState::kRunning, OperationState::kDone, "transferred; it is a barrier",
      "Done unless it is a send; on wan paths SayDone; for a receive EndOp, FinishOp"},
     {OperationState::kRunning, OperationState::kFrozen,
      "FreezeRequest, or EpochEnd without one; it fails or times out here; AbortProposal, perhaps "
      "before the call",
      "StateReport: not done; AbortRequest; AbortAnswer"},
     {OperationState::kDone, OperationState::kFrozen, "FreezeRequest, and it is a barrier",
      "StateReport: not done"},
     {OperationState::kFrozen, OperationState::kRestart, "EpochEnd, and it is continued",
      "EndOp if it was started"},
     {OperationState::kDone, OperationState::kRestart, "EpochEnd, and it is continued",
      "EndOp if it was started"},
     {OperationState::kRestart, OperationState::kRunning, "drained, and the next epoch has begun",
      "Begin, and StartOp once its data is staged; AbortRequest instead if there is a reason"},
     {OperationState::kFrozen, OperationState::kRunning,
      "the next epoch has begun, and it was called after EpochEnd",
      "Begin, and StartOp once its data is staged; AbortRequest instead if there is a reason"},
     {OperationState::kRunning, OperationState::kSettled,
      "aborted by Verdicts, EpochEnd or the end of this peer; committed, and it is a send",
      "EndOp, and FinishOp once drained"},
     {OperationState::kDone, OperationState::kSettled,
      "committed by Verdicts or EpochEnd; aborted by Verdicts, EpochEnd or the end of this peer",
      "EndOp, FinishOp unless it was returned before; EndOp, and FinishOp once drained"},
     {OperationState::kFrozen, OperationState::kSettled,
      "aborted by Verdicts, EpochEnd or the end of this peer; committed, and it is a send; it is a "
      "send whose other end is gone",
      "EndOp, and FinishOp once drained"},
     {OperationState::kRestart, OperationState::kSettled,
      "aborted by Verdicts, EpochEnd or the end of this peer; it is a send whose other end is gone",
      "EndOp, and FinishOp once drained"}});

}  // namespace

void Operation::enter(State next) {
  if (state != next) state = kOperationTransitions.step(state, next);
}

void Operation::begin(const Membership& membership) {
  PCCL_ASSERT(!membership.frozen() && !begun && !started && !returned);
  enter(State::kRunning);
  begun = true;
  answered = false;
  finished = info.start;
  absent_ranks = {};
  info.world_size = membership.world_size();
}

protocol::OpReport Operation::report(OpKey key) const {
  const bool done = state == State::kDone;
  const bool agreed = returned && protocol::agreed_among_members(info);
  const auto reported = agreed ? protocol::OpState::kReturned
                        : done ? protocol::OpState::kDone
                               : protocol::OpState::kNotDone;
  if (!info.keep) return {key, reported};
  return {key, reported, done ? info.count : begun ? finished : info.start};
}

void Operation::add_part(uint64_t end, const Membership& membership) {
  PCCL_ASSERT(end <= info.count && (parts.empty() || parts.back().end <= end));
  Part part{end, present(absent_ranks, membership)};
  const bool same = !parts.empty() && parts.back().contributors == part.contributors;
  if (same) parts.pop_back();
  parts.push_back(std::move(part));
}

bool Operation::repeat_later(uint64_t kept, const Membership& membership, bool restores) {
  PCCL_ASSERT(!returned && info.start <= kept && kept <= info.count);
  PCCL_ASSERT(started || kept == info.start);
  const bool overwrites = info.kind == OpKind::kAllReduce ||
                          (info.kind == OpKind::kReduce && info.root == membership.self());
  const bool spoiled = started && overwrites && !restores;
  if (started) ended_in = membership.epoch();
  if (kept > info.start) add_part(kept, membership);
  info.start = kept;
  begun = started = false;
  if (state == State::kRunning) enter(State::kFrozen);  // without a freeze request
  enter(State::kRestart);
  return spoiled;
}

void Operation::check(const Membership& membership) const {
  const bool barrier = info.kind == OpKind::kBarrier;
  switch (state) {
    case State::kRunning:
      PCCL_ASSERT(begun && !membership.frozen());
      PCCL_ASSERT(!started || !request);
      break;
    case State::kDone:
      PCCL_ASSERT(begun && started != barrier);
      PCCL_ASSERT(!barrier || !membership.frozen());
      break;
    case State::kFrozen: PCCL_ASSERT(membership.frozen() || (begun && request)); break;
    case State::kRestart: PCCL_ASSERT(!begun); break;
    case State::kCalled:
    case State::kSettled: PCCL_ASSERT(false);  // only within a step
  }
  PCCL_ASSERT(begun || !started);
  PCCL_ASSERT(!membership.ended() || !begun);
  PCCL_ASSERT(!returned || (state == State::kDone && !deadline));
  PCCL_ASSERT(!begun || info.world_size == membership.world_size());
  PCCL_ASSERT(info.start == 0 || (info.keep && info.kind == OpKind::kAllReduce));
  PCCL_ASSERT(info.start <= info.count);
  PCCL_ASSERT(returned || info.start == (parts.empty() ? 0 : parts.back().end));
  PCCL_ASSERT(!begun || (info.start <= finished && finished <= info.count));
}

}  // namespace pccl::peer
