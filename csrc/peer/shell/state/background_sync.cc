#include "csrc/peer/shell/state/background_sync.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::peer {

BackgroundSync::BackgroundSync(std::shared_ptr<Control::WaitingCall> call, InBackground how,
                               std::function<void()> give_up, std::function<void()> await,
                               Conclude conclude)
    : call_(std::move(call)),
      how_(std::move(how)),
      give_up_(std::move(give_up)),
      await_(std::move(await)),
      conclude_(std::move(conclude)) {
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
}

BackgroundSync::~BackgroundSync() {
  if (thread_.joinable()) thread_.join();
}

Status BackgroundSync::start() {
  PCCL_ASSERT(!thread_.joinable());
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return {Code::kSystem, std::string("no thread for the transfers: ") + error.what(), {}};
  }
  return {};
}

void BackgroundSync::run() {
  std::optional<FinishJoint> end;
  const auto wait = [&] { end = call_->waiter.wait({}); };
  const Status failure = caught([&] { how_.around ? how_.around(wait) : wait(); });
  if (!failure.ok()) {
    if (!end) give_up_();
    if (!end) end = call_->waiter.end();
    end->status = failure;
  }
  PCCL_ASSERT(end.has_value());
  bool alone = false;
  {
    const Lock lock(mutex_);
    if (end->status.ok()) elected_ = {end->revision, end->state_hash};
    end_ = std::move(end);
    alone = abandoned_;
  }
  changed_.notify_all();
  if (alone) (void)caught([&] { release(); });
}

// No caller takes this outcome.
void BackgroundSync::release() {
  (void)conclude_once([] { return Status{Code::kInvalidState, "nobody has waited for it", {}}; });
}

bool BackgroundSync::wait_until(Until what, Instant deadline, const Interrupted& interrupted) {
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

bool BackgroundSync::wait_for_votes(const Interrupted& interrupted) {
  return wait_until(Until::kVotes, monotonic_now() + kForever, interrupted);
}

bool BackgroundSync::wait(Instant until, const Interrupted& interrupted) {
  bool first = false;
  {
    const Lock lock(mutex_);
    first = !end_ && !std::exchange(awaited_, true);
  }
  if (first) await_();
  return wait_until(Until::kEnd, until, interrupted);
}

bool BackgroundSync::ended() const {
  const Lock lock(mutex_);
  return end_.has_value();
}

bool BackgroundSync::failed() const {
  const Lock lock(mutex_);
  return end_ && !end_->status.ok();
}

bool BackgroundSync::receives() const {
  const Lock lock(mutex_);
  return receives_;
}

std::pair<uint64_t, uint64_t> BackgroundSync::elected() const {
  const Lock lock(mutex_);
  return elected_;
}

Result<JointResult> BackgroundSync::conclude(const std::function<Status()>& may_install) {
  join();
  return conclude_once(may_install);
}

Result<JointResult> BackgroundSync::conclude_once(const std::function<Status()>& may_install) {
  const Lock conclusion(conclusion_);
  if (outcome_) return *outcome_;
  FinishJoint end;
  {
    const Lock lock(mutex_);
    PCCL_ASSERT(end_.has_value());
    end = *end_;
  }
  const Status refused = end.status.ok() && may_install ? may_install() : Status{};
  if (!refused.ok()) end.status = refused;
  outcome_ = conclude_(std::move(end));
  how_.keeps.reset();
  const Lock lock(mutex_);
  if (!refused.ok()) end_->status = refused;
  concluded_ = true;
  return *outcome_;
}

bool BackgroundSync::concluded() const {
  const Lock lock(mutex_);
  return concluded_;
}

std::optional<SyncProgress> BackgroundSync::take_progress() {
  const Lock lock(mutex_);
  return std::exchange(progress_, {});
}

void BackgroundSync::join() {
  const Lock joining(joining_);
  if (thread_.joinable()) thread_.join();
}

void BackgroundSync::abandon() {
  {
    const Lock lock(mutex_);
    abandoned_ = true;
    if (!end_) return;  // the thread releases its memory
  }
  release();
}

bool BackgroundSync::abandoned() const {
  const Lock lock(mutex_);
  return abandoned_;
}

}  // namespace pccl::peer
