#include "csrc/peer/shell/state/sync_call.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::peer {
namespace {

// Adds `failure`, the error of a device of this peer, to the error of the call; `failure` is ok if
// no device has failed. The call may have another error: it may have ended before the transfer of
// this peer failed, by a timeout or because no other member may send a state.
Status with_failure(Status error, const Status& failure) {
  if (failure.ok() || error.ok()) return failure.ok() ? error : failure;
  if (error.message.find(failure.message) == std::string::npos)
    error.message += "; this peer could not offer its state: " + failure.message;
  return error;
}

}  // namespace

SyncCall::SyncCall(Control& control, JointCalled event, std::shared_ptr<SharedEntries> entries,
                   InBackground how, std::function<Status()> may_wait)
    : control_(control),
      event_(std::move(event)),
      how_(std::move(how)),
      may_wait_(std::move(may_wait)) {
  call_->entries = std::move(entries);
}

SyncCall::~SyncCall() { join(); }

Status SyncCall::begin() {
  if (control_.joint(std::move(event_), call_)) return {};
  return {Code::kInvalidState, "sync_shared_state: this process has left the run", {}};
}

Result<JointResult> SyncCall::run(const Interrupted& interrupted, const OnProgress& on_progress) {
  call_->on_progress = on_progress;
  if (Status status = begin(); !status.ok()) return status;
  const WaitRecord::Wait wait(control_.waits().get(), {kInJointCall, monotonic_now()});
  work(interrupted);
  return conclude();
}

// The thread starts first: it carries out the transfers.
Status SyncCall::start() {
  PCCL_ASSERT(!thread_.joinable());
  event_.background = true;
  call_->on_decided = [this](const Control::WaitingCall::Decided& decided) {
    {
      const Lock lock(mutex_);
      receives_ |= decided.receives;  // after a loss there may be another plan
      elected_ = {decided.revision, decided.state_hash};
      decided_ = true;
    }
    changed_.notify_all();
  };
  call_->on_progress = [this](const SyncProgress& progress) {
    const Lock lock(mutex_);
    progress_ = progress;
  };
  try {
    thread_ = std::thread([this] { work({}); });
  } catch (const std::system_error& error) {
    return {Code::kSystem, std::string("no thread for the transfers: ") + error.what(), {}};
  }
  Status status = begin();
  if (!status.ok()) {
    FinishJoint end;
    end.status = status;
    call_->waiter.finish(std::move(end));
  }
  return status;
}

void SyncCall::work(const Interrupted& interrupted) {
  std::optional<FinishJoint> end;
  bool stopped = false;
  const auto until_end = [&] {
    end = call_->waiter.wait(interrupted);
    if (end) return;
    stopped = true;
    give_up();
    end = call_->waiter.wait({});  // the entries are lent until the master has answered
  };
  const Status failure = caught([&] { how_.around ? how_.around(until_end) : until_end(); });
  if (!failure.ok()) {
    if (!end) {
      give_up();
      end = call_->waiter.end();
    }
    end->status = failure;
  }
  PCCL_ASSERT(end.has_value());
  bool alone = false;
  {
    const Lock lock(mutex_);
    if (end->status.ok()) elected_ = {end->revision, end->state_hash};
    end_ = std::move(end);
    alone = !refusal_.ok();
    if (stopped && failure.ok())
      refusal_ = {Code::kInvalidState, "sync_shared_state was interrupted", {}};
  }
  changed_.notify_all();
  if (alone) (void)conclude();  // no caller takes this outcome
}

bool SyncCall::wait_until(Until what, Instant deadline, const Interrupted& interrupted) {
  const bool bounded = deadline < monotonic_now() + kForever / 2;
  const WaitRecord::Wait wait(control_.waits().get(), {kInJointCall, monotonic_now(), bounded});
  Lock lock(mutex_);
  while (!end_ && (what == Until::kEnd || !decided_)) {
    const Instant now = monotonic_now();
    if (now >= deadline) return false;
    const bool notified =
        changed_.wait_until(lock, std::min(deadline, now + Waiter::kInterruptPeriod));
    if (notified || !interrupted) continue;
    lock.unlock();
    if (interrupted()) return false;
    lock.lock();
  }
  return true;
}

bool SyncCall::wait_for_votes(const Interrupted& interrupted) {
  return wait_until(Until::kVotes, monotonic_now() + kForever, interrupted);
}

bool SyncCall::wait_for_end(Instant until, const Interrupted& interrupted) {
  if (!may_wait_().ok()) return true;
  bool first = false;
  {
    const Lock lock(mutex_);
    first = !end_ && !std::exchange(awaited_, true);
  }
  if (first) control_.await(call_);
  return wait_until(Until::kEnd, until, interrupted);
}

std::optional<Result<JointResult>> SyncCall::wait(Instant until, const Interrupted& interrupted) {
  if (Status status = may_wait_(); !status.ok()) return Result<JointResult>(status);
  if (!wait_for_end(until, interrupted)) return std::nullopt;
  return conclude();
}

bool SyncCall::ended() const {
  const Lock lock(mutex_);
  return end_.has_value();
}

bool SyncCall::failed() const {
  const Lock lock(mutex_);
  return end_ && !end_->status.ok();
}

bool SyncCall::receives() const {
  const Lock lock(mutex_);
  return receives_;
}

std::pair<uint64_t, uint64_t> SyncCall::elected() const {
  const Lock lock(mutex_);
  return elected_;
}

bool SyncCall::concluded() const {
  const Lock lock(mutex_);
  return outcome_.has_value();
}

std::optional<SyncProgress> SyncCall::take_progress() {
  const Lock lock(mutex_);
  return std::exchange(progress_, {});
}

Result<JointResult> SyncCall::conclude() {
  InBackground how;  // the memory of the entries is released without the lock
  Lock lock(mutex_);
  PCCL_ASSERT(end_.has_value());
  while (concluding_ && !outcome_) changed_.wait(lock);
  if (outcome_) return *outcome_;
  concluding_ = true;
  FinishJoint end = *end_;
  const Status refused = refusal_;
  lock.unlock();
  how = std::move(how_);
  Result<JointResult> outcome = outcome_of(std::move(end), refused, how);
  lock.lock();
  outcome_ = std::move(outcome);
  changed_.notify_all();
  return *outcome_;
}

Result<JointResult> SyncCall::outcome_of(FinishJoint end, const Status& refused,
                                         const InBackground& how) {
  SharedEntries& entries = *call_->entries;
  JointResult out;
  out.revision = end.revision;
  out.state_hash = end.state_hash;
  Status status = refused.ok() ? end.status : refused;
  const Status failed = caught([&] {
    if (status.ok() && how.may_install) status = how.may_install();
    if (status.ok()) status = entries.install(end.install);
    if (!status.ok()) return;
    out.bytes_sent = entries.bytes_sent();
    out.bytes_received = entries.bytes_received();
    if (!end.install.empty()) out.added = entries.take_added();
    out.corrected = std::move(end.corrected);
    out.drifted = end.drifted;
    if (out.bytes_received > 0 && how.installed) how.installed();
  });
  if (!failed.ok()) status = failed;
  control_.concluded(end.handle);
  if (refused.ok()) status = with_failure(std::move(status), entries.failure());
  entries.release();
  return status.ok() ? Result<JointResult>(std::move(out)) : status;
}

void SyncCall::join() {
  if (thread_.joinable()) thread_.join();
}

void SyncCall::abandon(Status why) {
  {
    const Lock lock(mutex_);
    refusal_ = std::move(why);
    if (!end_) return;  // the thread releases its memory
  }
  (void)conclude();
}

void SyncCall::give_up() { control_.give_up(call_); }

}  // namespace pccl::peer
