#include "csrc/peer/shell/wait_record.h"

#include <pthread.h>

namespace pccl::peer {

// The reader may see the parts of two waits. They are waits of one thread, one right after the
// other, and the next look shows the second one alone.
ThreadWait WaitRecord::Slot::wait() const {
  ThreadWait wait;
  wait.handle = handle.load(std::memory_order_acquire);
  wait.since = Instant{Duration{since.load(std::memory_order_relaxed)}};
  wait.bounded = bounded.load(std::memory_order_relaxed);
  if (handle.load(std::memory_order_acquire) != wait.handle) wait.handle = 0;
  return wait;
}

void WaitRecord::Slot::set(const ThreadWait& wait) {
  handle.store(0, std::memory_order_release);
  since.store(wait.since.since_start.count(), std::memory_order_release);
  bounded.store(wait.bounded, std::memory_order_release);
  handle.store(wait.handle, std::memory_order_release);
}

WaitRecord::Wait::Wait(WaitRecord* record, const ThreadWait& wait)
    : record_(record),
      slot_(record == nullptr ? nullptr : record->slot_of_this_thread()),
      wait_(wait) {
  if (slot_ == nullptr) return;
  before_ = slot_->wait();
  slot_->set(wait);
}

WaitRecord::Wait::~Wait() {
  if (slot_ == nullptr) return;
  slot_->set(before_);
  if (before_.handle == 0) record_->ended(*slot_, wait_);  // the outer one of two waits counts
}

void WaitRecord::ended(const Slot& slot, const ThreadWait& wait) {
  const Instant now = monotonic_now();
  const Lock lock(mutex_);
  if (&slot != slots_.data()) {
    account_.waited_elsewhere(wait.since, now);
  } else if (wait.handle == kInJointCall) {
    account_.waited_in_joint_call(wait.since, now);
  } else {
    account_.waited(wait.handle, wait.since, now);
  }
}

void WaitRecord::judged(Handle operation, PeerId last, Instant called_at) {
  const Lock lock(mutex_);
  account_.called(operation, last, called_at);
}

void WaitRecord::failed(Handle operation) {
  const Lock lock(mutex_);
  account_.failed(operation);
}

void WaitRecord::saved(Duration time) {
  const Lock lock(mutex_);
  account_.saved(time);
}

// A wait ends in its slot first, and then in the account. So no wait is in both here.
TimeTotals WaitRecord::totals(Instant now, bool moving) const {
  TimeTotals totals;
  {
    const Lock lock(mutex_);
    totals = account_.totals(now);
  }
  const ThreadWait wait = slots_[0].wait();
  if (wait.handle == 0 || wait.since > now) return totals;
  Duration& part = wait.handle == kInJointCall ? totals.joint
                   : moving                    ? totals.transferring
                                               : totals.waiting;
  part += now - wait.since;
  return totals;
}

WaitRecord::Slot* WaitRecord::slot_of_this_thread() {
  const auto me = static_cast<uint64_t>(pthread_self());
  for (Slot& slot : slots_) {
    uint64_t holder = slot.thread.load(std::memory_order_acquire);
    if (holder == me) return &slot;
    if (holder == 0 && slot.thread.compare_exchange_strong(holder, me)) return &slot;
  }
  full_ = true;
  return nullptr;
}

WaitsSeen WaitRecord::look() const {
  WaitsSeen seen;
  for (const Slot& slot : slots_) {
    if (slot.thread.load(std::memory_order_acquire) == 0) break;
    seen.threads.push_back(slot.wait());
  }
  seen.all = !full_;
  seen.callbacks = futures_ > 0;
  return seen;
}

}  // namespace pccl::peer
