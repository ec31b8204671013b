#include "csrc/peer/state_sync.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "csrc/base/transitions.h"
#include "csrc/peer/request.h"
#include "csrc/protocol/state.h"

namespace pccl::peer {
namespace {

using TransferState = StateSync::State;

const char* name_of(TransferState state) {
  switch (state) {
    case TransferState::kRunning: return "running";
    case TransferState::kDraining: return "draining";
    case TransferState::kFinished: return "finished";
  }
  return "unknown";
}

// A transfer begins with SyncPlan, but not before the transfers of an earlier plan are finished.
// The call itself has no state of its own: when all entries have arrived they are verified, and
// StateVerified is followed by Fetched.
const Transitions<TransferState, 3> kTransferTransitions(
    "a transfer of shared state", name_of,
    {{TransferState::kRunning, TransferState::kFinished, "transferred",
      "EndOp; VerifyState after the last entry"},
     {TransferState::kRunning, TransferState::kDraining,
      "Answer; EpochEnd; this peer is out of the run; SyncPlan of a restarted master", "EndOp"},
     {TransferState::kDraining, TransferState::kFinished, "drained",
      "StartOp for the next plan after the last drain"}});

uint64_t entry_bytes(const protocol::StateEntry& entry) {
  uint64_t bytes = element_bytes(entry.dtype);
  for (const int64_t size : entry.shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

// Differs unless both ends carry out the same plan.
uint64_t digest(const protocol::SyncPlan& plan, const protocol::Transfer& transfer) {
  std::string all = std::to_string(plan.number) + " " + std::to_string(plan.revision);
  for (const uint32_t key : transfer.keys) all += " " + std::to_string(key);
  return tag_id(all).value;
}

bool ascending_below(const std::vector<uint32_t>& keys, size_t bound) {
  const auto fault = std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<>());
  return !keys.empty() && fault == keys.end() && keys.back() < bound;
}

}  // namespace

Status StateSync::on_plan(const protocol::SyncPlan& plan, const Joint::OpenCall& call) {
  if (plan_ && *plan_ == plan) {  // repeated after a reconnection
    repeat();
    return {};
  }
  if (may_be_replaced_) reconfigure();
  may_be_replaced_ = false;
  const std::string why = check(plan, call);
  if (!why.empty()) return violation("SyncPlan " + std::to_string(plan.number) + ": " + why);
  PCCL_ASSERT(!plan_ && !said_ && receiving_ == 0 && fetched_keys_.empty());
  staged_.reset();
  plan_ = plan;
  handle_ = call.handle;
  start_when_clear();
  return {};
}

// Waits while the staging buffers of an earlier plan may still be written or read.
void StateSync::start_when_clear() {
  if (!plan_ || started_ || busy() || verifying_) return;
  started_ = true;
  for (const protocol::Transfer& transfer : plan_->transfers) start(*plan_, transfer, handle_);
  std::sort(fetched_keys_.begin(), fetched_keys_.end());
}

// Why this peer cannot accept a plan; empty if it can.
std::string StateSync::check(const protocol::SyncPlan& plan, const Joint::OpenCall& call) const {
  if (call.vote.kind != protocol::JointKind::kSyncSharedState || call.vote.number != plan.number ||
      call.result) {
    return "no such call is open here";
  }
  if (plan_ || membership_.ended()) return "another one has come before";
  const std::vector<protocol::StateEntry>& own = call.vote.offer.entries;
  const auto alike = [](const protocol::StateEntry& a, const protocol::StateEntry& b) {
    return a.key == b.key && a.dtype == b.dtype && a.shape == b.shape;
  };
  if (!std::equal(own.begin(), own.end(), plan.entries.begin(), plan.entries.end(), alike)) {
    return "its entries are not those that were offered";
  }
  std::set<std::pair<PeerId, PeerId>> pairs;
  std::set<uint32_t> received;
  for (const protocol::Transfer& transfer : plan.transfers) {
    const bool sends = transfer.source == membership_.self();
    const bool receives = transfer.destination == membership_.self();
    const PeerId other = sends ? transfer.destination : transfer.source;
    if (sends == receives || !membership_.rank_of(other))
      return "a transfer with nobody of this epoch";
    if (!pairs.emplace(transfer.source, transfer.destination).second)
      return "a transfer is there twice";
    if (!ascending_below(transfer.keys, plan.entries.size()))
      return "the keys of a transfer make no sense";
    for (const uint32_t key : transfer.keys) {
      if (receives && !received.insert(key).second) return "a key is to come from two peers";
    }
  }
  return {};
}

void StateSync::start(const protocol::SyncPlan& plan, const protocol::Transfer& transfer,
                      Handle handle) {
  const bool receives = transfer.destination == membership_.self();
  PCCL_ASSERT(receives != (transfer.source == membership_.self()));
  PCCL_ASSERT(started_ && !membership_.ended());
  ring::Task task;
  task.epoch = membership_.epoch();
  task.op = {reserved_tag("state " + text(transfer.source) + " " + text(transfer.destination)),
             plan.number};
  task.digest = digest(plan, transfer);
  task.handle = handle;
  task.shape.pattern = ring::Pattern::kTransfer;
  task.shape.rank = receives ? 1 : 0;
  task.shape.world = 2;
  task.shape.wan = membership_.topology().wan;
  for (const uint32_t key : transfer.keys) {
    task.shape.block_bytes.push_back(entry_bytes(plan.entries[key]));
    task.shape.count += task.shape.block_bytes.back();
  }
  (receives ? task.upstream : task.downstream) = receives ? transfer.source : transfer.destination;
  transfers_[{task.epoch, task.op}] = {receives, State::kRunning};
  if (receives) {
    ++receiving_;
    fetched_keys_.insert(fetched_keys_.end(), transfer.keys.begin(), transfer.keys.end());
  }
  context_.emit(
      StartOp{handle, std::move(task), DType::kBytes, ReduceOp::kSum, 1, transfer.keys, 0, {}});
}

void StateSync::enter(Running& transfer, State next) {
  transfer.state = kTransferTransitions.step(transfer.state, next);
}

void StateSync::finish(Transfers::iterator at) {
  enter(at->second, State::kFinished);
  transfers_.erase(at);
}

bool StateSync::transferred(Epoch epoch, OpKey key) {
  const auto at = transfers_.find({epoch, key});
  if (at == transfers_.end()) return false;
  if (at->second.state == State::kDraining) return true;
  PCCL_ASSERT(plan_ && started_ && epoch == membership_.epoch());
  context_.emit(EndOp{key, Ending::kCommitted});
  const bool receives = at->second.receives;
  finish(at);
  if (receives) {
    PCCL_ASSERT(receiving_ > 0);
    --receiving_;
    verify_when_complete();
  }
  return true;
}

void StateSync::verify_when_complete() {
  if (receiving_ > 0 || said_) return;
  PCCL_ASSERT(plan_ && !verifying_ && !fetched_keys_.empty());
  VerifyState verify{handle_, fetched_keys_, {}};
  for (const uint32_t key : fetched_keys_) verify.hashes.push_back(plan_->entries[key].hash);
  verifying_ = handle_;
  verifies_old_plan_ = false;
  context_.emit(std::move(verify));
}

bool StateSync::drained(Epoch epoch, OpKey key) {
  const auto at = transfers_.find({epoch, key});
  if (at == transfers_.end()) return false;
  PCCL_ASSERT(at->second.state == State::kDraining);
  finish(at);
  start_when_clear();
  return true;
}

bool StateSync::failed(Epoch epoch, OpKey key, const Status& why) {
  const auto at = transfers_.find({epoch, key});
  if (at == transfers_.end()) return false;
  PCCL_ASSERT(!why.ok());
  if (at->second.state == State::kRunning) say_fetched(why.code, why.message);
  return true;
}

void StateSync::verified(Handle handle, const Status& status) {
  PCCL_ASSERT(verifying_ == handle);
  const bool for_this_plan = !verifies_old_plan_;
  verifying_.reset();
  if (!for_this_plan) return start_when_clear();
  if (!plan_ || said_) return;  // answered in the meantime
  verified_ = status.ok();
  say_fetched(status.code, status.message);
}

// A transfer that fails here fails the call for all members, whether this peer sends or receives.
void StateSync::say_fetched(Code code, std::string text) {
  if (said_) return;
  PCCL_ASSERT(plan_ && started_);
  if (code != Code::kOk) {
    text = "rank " + std::to_string(membership_.topology().rank) + " (peer " +
           pccl::text(membership_.self()) + "): " + text;
  }
  said_ = protocol::Fetched{plan_->number, code, std::move(text)};
  context_.send(*said_);
}

void StateSync::stop() {
  started_ = plan_.has_value();  // a plan that waits for earlier staging buffers never starts
  for (auto& [key, transfer] : transfers_) {
    if (transfer.state == State::kDraining) continue;
    enter(transfer, State::kDraining);
    context_.emit(EndOp{key.second});
  }
}

void StateSync::master_restarted() { may_be_replaced_ = plan_.has_value(); }

// The master may have answered before the epoch ended, and announce the end first. The answer then
// comes without another plan, and is about the entries that were already fetched.
void StateSync::reconfigure() {
  PCCL_ASSERT(!verified_ || plan_);
  if (verified_) staged_ = {plan_->revision, plan_->entries, fetched_keys_};
  stop();
  forget_plan();
}

void StateSync::forget_plan() {
  verifies_old_plan_ = verifying_.has_value();
  plan_.reset();
  said_.reset();
  fetched_keys_.clear();
  receiving_ = 0;
  started_ = verified_ = may_be_replaced_ = false;
}

FinishJoint StateSync::settle(const Status& status, const protocol::Answer& answer) {
  PCCL_ASSERT(answer.kind == protocol::JointKind::kSyncSharedState && (!verified_ || plan_));
  stop();
  FinishJoint result;
  result.status = status;
  if (status.ok() && verified_) {
    result.install = std::move(fetched_keys_);
    result.entries = std::move(plan_->entries);
  } else if (status.ok() && staged_ && staged_->revision == answer.revision &&
             protocol::state_hash(staged_->entries) == answer.state_hash) {
    result.install = std::move(staged_->keys);
    result.entries = std::move(staged_->entries);
  }
  PCCL_ASSERT(result.install.size() <= result.entries.size());
  staged_.reset();
  forget_plan();
  return result;
}

void StateSync::repeat() const {
  if (said_) context_.send(*said_);
}

void StateSync::check() const {
  size_t running = 0, receiving = 0;
  for (const auto& [key, transfer] : transfers_) {
    PCCL_ASSERT(key.first <= membership_.epoch());
    if (transfer.state == State::kDraining) continue;
    ++running;
    if (transfer.receives) ++receiving;
    PCCL_ASSERT(key.first == membership_.epoch() && started_);
  }
  PCCL_ASSERT(running == 0 || receiving == receiving_);
  PCCL_ASSERT(!staged_ || !plan_);
  PCCL_ASSERT(!verified_ || (said_ && said_->code == Code::kOk));
  const bool verifies_this = verifying_ && !verifies_old_plan_;
  PCCL_ASSERT(!verifies_this || (started_ && receiving_ == 0 && verifying_ == handle_));
  PCCL_ASSERT(!(verified_ || verifies_this) ||
              ascending_below(fetched_keys_, plan_->entries.size()));
  PCCL_ASSERT(!said_ || (plan_ && said_->number == plan_->number));
  if (plan_) return;
  PCCL_ASSERT(!started_ && !verified_ && !verifies_this && !may_be_replaced_ && !said_);
  PCCL_ASSERT(fetched_keys_.empty() && receiving_ == 0);
}

}  // namespace pccl::peer
