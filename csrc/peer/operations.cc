#include "csrc/peer/operations.h"

#include <algorithm>

#include "csrc/peer/request.h"

namespace pccl::peer {

using protocol::OpKind;
using State = Operation::State;

namespace {

// The master leaves texts out if very many verdicts come together.
Status outcome_of(const protocol::Verdict& verdict) {
  const bool unexplained = verdict.code != Code::kOk && verdict.text.empty();
  return {verdict.code,
          unexplained ? "it ended with too many others to explain each" : verdict.text,
          {}};
}

}  // namespace

// ---- Calls ----

void Operations::call(const OpRequest& request, bool fetches) {
  PCCL_ASSERT(membership_.phase() == Phase::kMember);
  Status refused = peer::check(request, membership_);
  if (refused.ok() && request.keep && !context_.options.restore) {
    refused = {Code::kInvalidArgument,
               "on_loss=\"keep\" needs tensors that are restored, and PCCL_RESTORE is off: a part "
               "that is not kept would be lost",
               {}};
  }
  const bool from_any = request.kind == OpKind::kRecv && request.root == kAnySource;
  if (refused.ok()) refused = check_room(request);
  if (refused.ok() && from_any) refused = any_source_.check_room(request);
  if (refused.ok() && fetches) refused = check_absent(request, membership_);
  if (!refused.ok()) return context_.emit(FinishOp{request.handle, refused, {}, {}, {}});
  if (from_any) return any_source_.call(request, closed_);
  tag_bytes_ += protocol::carried_bytes(request);
  CalledOp call{request.handle,  info_of(request, membership_),
                request.timeout, membership_.seen().since(),
                request.parked,  request.priority};
  call.absent = fetches && can_be_absent_from(call.info);
  if (closed_) {
    PCCL_ASSERT(held_.empty() || held_.back().handle < call.handle);
    held_.push_back(std::move(call));
  } else {
    release(std::move(call));
  }
}

void Operations::staged(Handle handle, const Status& status) {
  if (any_source_.staged(handle, status)) return;
  for (CalledOp& call : held_) {
    if (call.handle != handle) continue;
    call.parked = false;
    call.unfit = status;
    return;
  }
  const auto at = parked_.find(handle);
  if (at == parked_.end()) return;
  const OpKey key = at->second;
  Operation& op = open_.at(key);
  PCCL_ASSERT(op.handle == handle && !op.started);
  if (!status.ok()) return request_abort(key, op, status.code, unfit(op.info, key, status));
  parked_.erase(at);
  if (op.state == State::kRunning && !op.request) start(key, op);
}

std::string Operations::unfit(const protocol::OpInfo& info, OpKey key, const Status& why) const {
  return name(info, key, membership_) + " failed on rank " +
         std::to_string(membership_.topology().rank) + ": " + why.message;
}

Status Operations::check_room(const OpRequest& request) const {
  if (open_.size() + held_.size() + any_source_.size() >= protocol::kOpsOpenMax) {
    return {Code::kInvalidState,
            std::to_string(protocol::kOpsOpenMax) +
                " operations of this process are in flight, the most there can be: wait for some "
                "of them",
            {}};
  }
  const size_t tag_bytes = tag_bytes_ + any_source_.tag_bytes();
  if (tag_bytes + protocol::carried_bytes(request) > protocol::kCarriedBytesMax) {
    return {Code::kInvalidState,
            "the tags, sizes of parts and call sites of the operations in flight have " +
                std::to_string(tag_bytes) + " bytes together, at most " +
                std::to_string(protocol::kCarriedBytesMax) +
                " are allowed: wait for some of them, or use shorter tags",
            {}};
  }
  return {};
}

void Operations::open_posting() {
  PCCL_ASSERT(closed_);
  closed_ = false;
  std::deque<CalledOp> calls;
  calls.swap(held_);
  for (CalledOp& call : calls) release(std::move(call));
  any_source_.open_posting();
}

void Operations::release(CalledOp call) {
  const bool broken = !membership_.broken().ok();
  PCCL_ASSERT(call.members <= membership_.members_since());
  if (broken || call.members == membership_.members_since()) return post(std::move(call));
  const Status changed = check_after_change(call.info, membership_);
  if (changed.ok() || call.info.kind != OpKind::kSend) return post(std::move(call), changed);
  uncount_tag(call.info);  // the other end is gone: no other member has this operation
  context_.emit(FinishOp{call.handle, changed, {}, {}, {}});
}

void Operations::post(CalledOp call, const Status& refused) {
  PCCL_ASSERT(generation_ == membership_.generation());
  call.info.world_size = membership_.world_size();
  OpKey key{tag_of(call.info), 0};
  key.sequence = next_[key.tag]++;
  const auto early = verdicts_.take_early(key);
  const bool broken = !membership_.broken().ok();
  if (early || broken) {
    if (!broken && !membership_.frozen())
      context_.send(protocol::Begin{membership_.epoch(), key, call.info});
    asked_.erase(key);
    context_.emit(EndOp{key});
    uncount_tag(call.info);
    const Status outcome = early ? outcome_of(*early) : lost(call.info, key);
    return context_.emit(
        FinishOp{call.handle, outcome, membership_.epoch(), key, {}, early.has_value()});
  }
  const auto [at, fresh] = open_.try_emplace(key);
  PCCL_ASSERT(fresh && !drains_.contains(membership_.epoch(), key));
  Operation& op = at->second;
  op.handle = call.handle;
  op.info = std::move(call.info);
  op.timeout = call.timeout;
  op.absent = call.absent;
  op.priority = call.priority;
  if (call.parked) parked_.emplace(op.handle, key);
  if ((op.deadline = call.deadline)) deadlines_.emplace(*op.deadline, key);
  if (!refused.ok()) {
    op.request = abort_request(key, refused.code, refused.message);
  } else if (!call.unfit.ok()) {
    op.request = abort_request(key, call.unfit.code, unfit(op.info, key, call.unfit));
  }
  if (membership_.frozen()) return op.enter(State::kFrozen);
  begin(key, op);
}

void Operations::begin(OpKey key, Operation& op) {
  op.begin(membership_);
  context_.send(protocol::Begin{membership_.epoch(), key, op.info});
  if (const auto asked = asked_.extract(key)) {
    op.answered = true;
    op.enter(State::kFrozen);
    if (!op.request) op.request = asked.mapped();
    return;  // the master knows it
  }
  if (!op.request) {
    Status unfit = check_format(op.info, membership_);
    if (unfit.ok()) return start(key, op);
    op.request = abort_request(key, unfit.code, std::move(unfit.message));
  }
  op.request->epoch = membership_.epoch();
  context_.send(*op.request);
}

void Operations::start(OpKey key, Operation& op) {
  PCCL_ASSERT(op.begun && !op.started && !op.request);
  if (op.timeout > Duration{0} && !op.deadline) {
    op.deadline = context_.after(op.timeout);
    deadlines_.emplace(*op.deadline, key);
  }
  if (op.info.kind == OpKind::kBarrier) {
    op.enter(State::kDone);
    op.done_at = context_.now;
    return context_.send(protocol::Done{membership_.epoch(), key, verdicts_.seen()});
  }
  ring::Task task = task_of(op.info, key, op.handle, membership_);
  open_lanes(task);
  if (parked_.contains(op.handle)) return;  // staged() calls this again
  op.started = true;
  task.priority = op.priority;
  if (op.absent) task.absent = absence_from(op.info, membership_);
  std::vector<uint32_t> order = order_of(task, membership_);
  context_.emit(StartOp{op.handle,
                        std::move(task),
                        op.info.dtype,
                        op.info.reduce,
                        static_cast<int>(membership_.world_size()),
                        {},
                        op.info.start,
                        std::move(order)});
}

// Requests the lanes for this task, once for each link in an epoch: a link that breaks ends the
// epoch.
void Operations::open_lanes(const ring::Task& task) {
  if (std::exchange(lanes_epoch_, membership_.epoch()) != membership_.epoch()) with_lanes_.clear();
  for (const PeerId peer : wide_legs(task, membership_)) {
    if (with_lanes_.insert(peer).second) context_.emit(OpenLanes{peer});
  }
}

// ---- Receives from any source ----

Status Operations::on_send_begun(const protocol::SendBegun& send) {
  if (Status status = any_source_.check(send); !status.ok()) return status;
  if (!send.sender) {
    any_source_.no_sender(send.tag);
  } else if (!membership_.frozen()) {  // else this peer asks again in the next epoch
    if (any_source_.waits(send.tag)) take_send(send);
    any_source_.answered(send.tag);
  }
  return {};
}

// A receive that names its source may have taken this send already. Sends that ended before they
// were received are skipped: no sender waits for them any more. If an older send of this sender is
// open, the receive takes the older one.
void Operations::take_send(const protocol::SendBegun& send) {
  protocol::OpInfo info;
  info.kind = OpKind::kSend;
  info.root = send.sender;
  info.receiver = membership_.self();
  info.tag = send.tag;
  info.world_size = membership_.world_size();
  const TagId tag = tag_of(info);
  uint32_t& next = next_[tag];
  for (; next <= send.sequence && verdicts_.take_early({tag, next}); ++next) {
    context_.send(protocol::Begin{membership_.epoch(), {tag, next}, info});
    context_.emit(EndOp{{tag, next}});
  }
  if (next > send.sequence) return;
  AnySource::Receive receive = any_source_.take(send.tag);
  info.dtype = receive.request.dtype;
  info.count = receive.request.count;
  tag_bytes_ += protocol::carried_bytes(info);
  post({receive.request.handle, info, receive.request.timeout, membership_.seen().since(),
        receive.request.parked, receive.request.priority, receive.unfit, receive.deadline});
}

// ---- From the ring ----

Operation* Operations::find(Epoch epoch, OpKey key) {
  const auto at = open_.find(key);
  return epoch == membership_.epoch() && at != open_.end() ? &at->second : nullptr;
}

bool Operations::transferred(Epoch epoch, OpKey key, protocol::AbsentRanks absent) {
  if (drains_.contains(epoch, key)) return true;
  Operation* const op = find(epoch, key);
  if (op == nullptr) return false;
  if (op->state == State::kFrozen) return true;
  PCCL_ASSERT(op->state == State::kRunning && op->started);
  op->enter(State::kDone);
  op->done_at = context_.now;
  op->absent_ranks = absent;
  if (op->sends(membership_.self())) return true;  // its receiver sends Done
  context_.send(protocol::Done{epoch, key, verdicts_.seen()});
  if (op->receives(membership_.self())) {
    hand_back(key, *op);
  } else if (membership_.topology().wan && protocol::agreed_among_members(op->info)) {
    context_.emit(SayDone{key});
  }
  return true;
}

// All members are done: the operation is returned at once, and stays open until its verdict comes.
// After the state report, an abort request or the answer to an abort proposal it is not returned:
// the master decides from these, and a member that lies could send its word after them.
// If many operations are open, the master is away or far behind. Then operations wait for their
// verdicts.
void Operations::agreed(Epoch epoch, OpKey key) {
  Operation* const op = find(epoch, key);
  if (op == nullptr || op->state != State::kDone || op->returned || membership_.frozen()) return;
  if (op->answered || op->request) return;
  if (open_.size() <= protocol::kOpsOpenMax / 2 && tag_bytes_ <= protocol::kCarriedBytesMax / 2)
    hand_back(key, *op);
}

void Operations::progressed(Epoch epoch, OpKey key, uint64_t finished,
                            protocol::AbsentRanks absent) {
  Operation* const op = find(epoch, key);
  if (op == nullptr || op->state != State::kRunning) return;
  PCCL_DCHECK(op->info.keep && finished <= op->info.count - op->info.start);
  PCCL_DCHECK(op->finished <= op->info.start + finished);
  op->finished = op->info.start + finished;
  op->absent_ranks = absent;
}

bool Operations::drained(Epoch epoch, OpKey key) {
  const Drains::Drained drained = drains_.drained(epoch, key);
  if (drained == Drains::Drained::kAgain) {
    PCCL_ASSERT(open_.at(key).state == State::kRestart && open_.at(key).ended_in == epoch);
    restart(key);
  }
  return drained != Drains::Drained::kUnknown;
}

bool Operations::failed(Epoch epoch, OpKey key, const Status& why) {
  if (drains_.contains(epoch, key)) return true;
  Operation* const op = find(epoch, key);
  if (op == nullptr) return false;
  if (op->state == State::kFrozen) return true;
  PCCL_ASSERT(!why.ok() && op->started);
  request_abort(key, *op, why.code, unfit(op->info, key, why));
  return true;
}

// ---- Outcomes ----

void Operations::hand_back(OpKey key, Operation& op) {
  PCCL_ASSERT(op.state == State::kDone && !op.returned);
  op.returned = true;
  end_deadline(key, op);
  if (op.started) context_.emit(EndOp{key, Ending::kCommitted});
  if (op.info.keep) op.add_part(op.info.count, membership_);
  if (op.info.kind != OpKind::kSend) context_.took_part(protocol::Standing::kCompared);
  FinishOp result{op.handle, {}, membership_.epoch(), key, std::move(op.parts)};
  if (op.receives(membership_.self())) result.source = membership_.seen().rank_of(op.info.root);
  result.committing = context_.now - op.done_at;
  context_.emit(std::move(result));
}

Operations::Open::iterator Operations::finish(Open::iterator at) {
  auto& [key, op] = *at;
  PCCL_ASSERT(op.may_commit(membership_.self()));
  if (op.returned) return remove(at);
  if (op.state == State::kDone) {
    hand_back(key, op);
    // A send commits when its receiver is done, perhaps before this peer is done.
  } else {
    context_.emit(EndOp{key, Ending::kCommitted});
    if (op.started) {
      drains_.finish(membership_.epoch(), key, op.handle);
    } else {  // it is parked, and the receiver did not need its data
      context_.emit(FinishOp{op.handle, {}, membership_.epoch(), key, {}});
    }
  }
  return remove(at);
}

Operations::Open::iterator Operations::abort(Open::iterator at, Status outcome) {
  const auto& [key, op] = *at;
  PCCL_ASSERT(!outcome.ok());
  if (op.returned) return remove(at);
  context_.emit(EndOp{key});
  // The part that earlier epochs have finished is restored, too, with an OpDrained of its own.
  const int kept = op.info.start > 0 ? 1 : 0;
  if (op.state == State::kRestart && drains_.contains(op.ended_in, key)) {
    PCCL_ASSERT(!op.started);
    drains_.abort(op.ended_in, key, std::move(outcome), kept);
  } else if (op.started || kept > 0) {
    drains_.finish(op.started ? membership_.epoch() : op.ended_in, key, op.handle,
                   std::move(outcome));
  } else {
    context_.emit(FinishOp{op.handle, std::move(outcome), membership_.epoch(), key, {}});
  }
  return remove(at);
}

Operations::Open::iterator Operations::remove(Open::iterator at) {
  auto& [key, op] = *at;
  op.enter(State::kSettled);
  end_deadline(key, op);
  uncount_tag(op.info);
  parked_.erase(op.handle);
  asked_.erase(key);
  return open_.erase(at);
}

protocol::StateReport Operations::freeze() {
  PCCL_ASSERT(membership_.frozen());
  protocol::StateReport report{membership_.epoch(), {}};
  for (auto& [key, op] : open_) {
    // A barrier is never done in an epoch that ends: no survivor knows whether the lost members had
    // reached it.
    if (op.state == State::kRunning || op.info.kind == OpKind::kBarrier) op.enter(State::kFrozen);
    // A kept part is reported even if its operation has not begun again, so that it stays kept.
    if (op.begun || op.info.start > 0) report.ops.push_back(op.report(key));
  }
  return report;
}

Status Operations::on_verdicts(const protocol::Verdicts& verdicts) {
  if (verdicts.epoch != membership_.epoch() || membership_.ended()) {
    return violation("verdicts of epoch " + text(verdicts.epoch));
  }
  Status status = verdicts_.check(verdicts);
  if (!status.ok()) return status;
  for (const protocol::Verdict& verdict : verdicts.verdicts) {
    status = settle(verdict);
    if (!status.ok()) return status;
    verdicts_.add(verdict);
  }
  PCCL_ASSERT(verdicts_.seen() == verdicts.first_index + verdicts.verdicts.size());
  return {};
}

Status Operations::settle(const protocol::Verdict& verdict) {
  const bool committed = verdict.outcome == protocol::Outcome::kCommitted;
  const auto refuse = [&](const std::string& why) {
    return violation("verdict of #" + std::to_string(verdict.op.sequence) + " " + why);
  };
  if (committed != (verdict.code == Code::kOk)) return refuse("contradicts itself");
  const auto at = open_.find(verdict.op);
  if (at != open_.end()) {
    const Operation& op = at->second;
    if (committed && !op.may_commit(membership_.self())) {
      return refuse("is to commit, but it is not done here");
    }
    if (!committed && op.returned && !op.receives(membership_.self())) {
      return refuse("is to abort, but all members had reported that they are done");
    }
    const auto& members = membership_.topology().members;
    if (verdict.last >= members.size()) return refuse("names a rank that there is not");
    // If this peer was the last one, it has not waited for a call.
    const PeerId last = members[verdict.last].peer;
    const std::chrono::microseconds since(verdict.last_us);
    context_.emit(OpJudged{op.handle, last, last == membership_.self() ? kForever : since});
    if (op.state == State::kRestart) {  // the master counts the members that received the verdict
      context_.send(protocol::Begin{membership_.epoch(), verdict.op, op.info});
    }
    committed ? finish(at) : abort(at, outcome_of(verdict));
    return {};
  }
  const bool between_others = verdict.receiver && verdict.receiver != membership_.self() &&
                              verdict.sender != membership_.self();
  asked_.erase(verdict.op);
  if (between_others || was_called(verdict.op)) return {};
  if (committed) return refuse("is to commit, but it was not called here");
  if (!verdicts_.keep_early(verdict)) return refuse("is one too many of those not called here");
  context_.emit(EndOp{verdict.op});
  return {};
}

Status Operations::check(const protocol::EpochEnd& end) const {
  const std::set<OpKey> committed(end.committed.begin(), end.committed.end());
  for (const auto& [key, op] : open_) {
    const bool commits = committed.contains(key);
    const bool may_abort = !op.returned || op.receives(membership_.self());
    if (commits ? op.may_commit(membership_.self()) : may_abort) continue;
    return violation("the end of epoch " + text(end.epoch) + " is " +
                     (commits ? "to commit " : "not to commit ") + text(op.info, key) +
                     (commits ? ", but it is not done here"
                              : ", but all members had reported that they are done"));
  }
  if (!end.kept.empty() && end.continuation == protocol::Continuation::kNothing)
    return violation("the end of epoch " + text(end.epoch) +
                     " keeps operations and continues none");
  for (const protocol::Kept& kept : end.kept) {
    const Status status = check(kept);
    if (!status.ok()) return status;
  }
  return {};
}

Status Operations::check(const protocol::Kept& kept) const {
  const auto at = open_.find(kept.op);
  if (at != open_.end() && at->second.info.keep) {
    const uint64_t most = at->second.report(at->first).finished;
    if (kept.finished >= at->second.info.start && kept.finished <= most) return {};
  }
  return violation("the end of epoch " + text(membership_.epoch()) + " keeps " +
                   std::to_string(kept.finished) + " elements of #" +
                   std::to_string(kept.op.sequence) + ", which this peer has not reported");
}

// Both lists, `committed` and `kept`, are complete. An operation on neither list is aborted or, if
// everything continues, begins again from its start.
void Operations::on_epoch_end(const protocol::EpochEnd& end) {
  PCCL_ASSERT(membership_.ended() && end.epoch == membership_.epoch() && check(end).ok());
  const std::set<OpKey> committed(end.committed.begin(), end.committed.end());
  std::map<OpKey, uint64_t> kept;
  for (const protocol::Kept& one : end.kept) kept.emplace(one.op, one.finished);
  for (auto at = open_.begin(); at != open_.end();) {
    const auto continuation = kept.find(at->first);
    if (committed.contains(at->first)) {
      at = finish(at);
    } else if (at->second.returned) {  // a receive, which has succeeded here in any case
      at = remove(at);
    } else if (continuation != kept.end()) {
      repeat_later(at->first, at->second, continuation->second);
      ++at;
    } else if (end.continuation == protocol::Continuation::kEverything) {
      repeat_later(at->first, at->second, at->second.info.start);
      ++at;
    } else {
      at = abort(at, lost(at->second.info, at->first));
    }
  }
  any_source_.end_changed();
}

void Operations::begin_generation() {
  asked_.clear();
  any_source_.end_changed();
  PCCL_ASSERT(settled() && deadlines_.empty());
  PCCL_ASSERT(generation_ < membership_.generation());
  next_.clear();
  generation_ = membership_.generation();
  verdicts_.begin_generation();
  verdicts_epoch_ = membership_.epoch();
}

void Operations::end(const Status& why) {
  const auto outcome = [&](const std::string& what) {
    return Status{why.code, what + ": " + why.message, why.peer};
  };
  for (auto at = open_.begin(); at != open_.end();) {
    at = abort(at, outcome(name(at->second.info, at->first, membership_)));
  }
  any_source_.end(why);
  for (const CalledOp& call : held_) {
    context_.emit(FinishOp{call.handle, outcome(text(call.info)), {}, {}, {}});
    uncount_tag(call.info);
  }
  held_.clear();
  PCCL_ASSERT(open_.empty() && tag_bytes_ == 0 && deadlines_.empty());
}

Status Operations::lost(const protocol::OpInfo& info, OpKey key) const {
  const Status& broken = membership_.broken();
  PCCL_ASSERT(!broken.ok());
  return {broken.code, name(info, key, membership_) + ": " + broken.message, broken.peer};
}

// ---- A generation that continues in another epoch ----

void Operations::repeat_later(OpKey key, Operation& op, uint64_t kept) {
  if (op.state == State::kRestart) return;
  if (op.started) {
    drains_.restart(membership_.epoch(), key, op.handle);
    context_.emit(EndOp{key, Ending::kRestart, kept - op.info.start});
  }
  const bool spoiled = op.repeat_later(kept, membership_, context_.options.restore);
  if (!spoiled || op.request) return;
  op.request = abort_request(
      key, Code::kPeerLost,
      name(op.info, key, membership_) + " was interrupted on rank " +
          std::to_string(membership_.topology().rank) +
          ", which does not restore tensors (PCCL_RESTORE=off): nothing is left to repeat it with");
}

// Restarts the operations in the order of their calls: a link gives priority to the operation that
// started first.
void Operations::reconfigure() {
  PCCL_ASSERT(!membership_.frozen() && verdicts_epoch_ < membership_.epoch());
  verdicts_.begin_epoch();
  verdicts_epoch_ = membership_.epoch();
  asked_.clear();
  std::vector<OpKey> keys;
  for (const auto& [key, op] : open_) keys.push_back(key);
  std::sort(keys.begin(), keys.end(),
            [this](OpKey a, OpKey b) { return open_.at(a).handle < open_.at(b).handle; });
  const bool changed = membership_.members_since() == membership_.epoch();
  for (const OpKey key : keys) {
    if (changed) recheck(key);
    if (open_.contains(key)) restart(key);
  }
  any_source_.end_changed();
  any_source_.ask_again();
}

// After a loss within the generation: ends an operation that means something else with the new
// members.
void Operations::recheck(OpKey key) {
  const auto at = open_.find(key);
  PCCL_ASSERT(at != open_.end() && !at->second.begun);
  const Status changed = check_after_change(at->second.info, membership_);
  if (changed.ok() || at->second.request) return;
  if (at->second.info.kind == OpKind::kSend) {  // no other member has this operation
    abort(at, changed);
  } else {
    at->second.request = abort_request(key, changed.code, changed.message);
  }
}

void Operations::restart(OpKey key) {
  Operation& op = open_.at(key);
  PCCL_ASSERT(op.state == State::kRestart || op.state == State::kFrozen);
  const bool drains = drains_.contains(op.ended_in, key);
  if (!membership_.frozen() && !drains) begin(key, op);
}

bool Operations::reconfigured() const {
  return std::all_of(open_.begin(), open_.end(), [](const auto& at) { return at.second.begun; });
}

bool Operations::in_flight() const {
  if (held_.size() + any_source_.size() > 0) return true;
  const auto& drains = drains_.all();
  return std::any_of(open_.begin(), open_.end(),
                     [](const auto& at) { return !at.second.returned; }) ||
         std::any_of(drains.begin(), drains.end(),
                     [](const auto& at) { return at.second.outcome.has_value(); });
}

// ---- Time, reconnection ----

void Operations::on_time() {
  any_source_.on_time();
  while (!deadlines_.empty() && deadlines_.begin()->first <= context_.now) {
    const OpKey key = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    Operation& op = open_.at(key);
    PCCL_ASSERT(op.deadline && *op.deadline <= context_.now);
    op.deadline.reset();
    request_abort(key, op, Code::kOperationTimeout,
                  name(op.info, key, membership_) + " timed out after " + text(op.timeout) +
                      " on rank " + std::to_string(membership_.topology().rank) + " (" +
                      (context_.options.name.empty() ? "" : context_.options.name + ", ") +
                      "peer " + text(membership_.self()) + ")");
  }
}

std::optional<Instant> Operations::deadline() const {
  const std::optional<Instant> first = any_source_.deadline();
  if (deadlines_.empty()) return first;
  return first ? std::min(*first, deadlines_.begin()->first) : deadlines_.begin()->first;
}

protocol::AbortRequest Operations::abort_request(OpKey key, Code code, std::string text) const {
  PCCL_ASSERT(code != Code::kOk);
  return {membership_.epoch(), key, code, std::move(text)};
}

void Operations::request_abort(OpKey key, Operation& op, Code code, std::string text) {
  PCCL_ASSERT(!op.returned);
  if (op.request) return;  // one reason is enough
  op.request = abort_request(key, code, std::move(text));
  // A frozen operation gets its outcome at the end of the epoch, or requests the abort after it.
  if (!op.begun || membership_.frozen()) return;
  // After the request, the operation must not become done.
  if (op.state == State::kRunning) op.enter(State::kFrozen);
  context_.send(*op.request);
}

// An operation that has not begun in this epoch is frozen when it begins. If it is not done, this
// peer requests the abort, too: a restarted master has forgotten the proposal, and the peer that
// asked for it may not ask again.
Status Operations::on_abort_proposal(const protocol::AbortProposal& what) {
  if (what.code == Code::kOk) return violation("AbortProposal without a reason");
  if (what.epoch != membership_.epoch() || membership_.frozen()) return {};
  const auto at = open_.find(what.op);
  auto state = protocol::OpState::kNotDone;
  if (at != open_.end() && at->second.begun) {
    Operation& op = at->second;
    op.answered = true;
    if (op.state == State::kRunning) {
      op.enter(State::kFrozen);
      op.request = abort_request(what.op, what.code, what.text);
    }
    state = op.report(what.op).state;
  } else if (at != open_.end() || !was_called(what.op)) {
    if (asked_.size() >= protocol::kOpsOpenMax)
      return violation("more than " + std::to_string(protocol::kOpsOpenMax) +
                       " abort proposals for operations that have not begun");
    asked_.try_emplace(what.op, abort_request(what.op, what.code, what.text));
  }
  context_.send(protocol::AbortAnswer{what.epoch, what.op, state});
  return {};
}

void Operations::describe(protocol::Resume& resume) const {
  for (const auto& [key, op] : open_) {
    if (!op.begun) continue;
    resume.ops.push_back({key, op.report(key).state, 0});
    resume.infos.push_back(op.info);
  }
  verdicts_.describe(resume);
}

bool Operations::waits(OpKey key) const {
  const auto at = open_.find(key);
  if (at == open_.end() || membership_.frozen()) return false;
  const Operation& op = at->second;
  const bool runs = op.state == State::kRunning || op.state == State::kDone;
  return op.begun && runs && !op.returned && !op.request;
}

std::optional<OpKey> Operations::waiting(Handle handle) const {
  const auto at = std::find_if(open_.begin(), open_.end(),
                               [handle](const auto& one) { return one.second.handle == handle; });
  return at != open_.end() && waits(at->first) ? std::optional(at->first) : std::nullopt;
}

void Operations::repeat_requests() {
  if (membership_.frozen()) return;
  for (const auto& [key, op] : open_) {
    if (op.request && op.begun) context_.send(*op.request);
  }
  any_source_.ask_again();
}

}  // namespace pccl::peer
