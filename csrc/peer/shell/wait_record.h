// WaitRecord: the waits of the application's threads for the calls of one group. The peer loop
// looks at the present ones from time to time (LookAtWaits). The past ones are added up
// (TimeAccount). A wait costs a few stores and a lock that is seldom held, and no system call. Peer
// makes one record; the handles of operations share it.
// Any thread may call it. Only the thread itself writes its slot. The thread of the first slot is
// the application's: the account has its waits, and the sum of all others.
// Invariants:
//   1. A thread has a slot from its first call or wait on. A thread that starts after another one
//      has ended may take over its slot.
//   2. The slots in use come first.
// Failure: if more threads make calls than there are slots, the record is incomplete from then on
// (WaitsSeen::all).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "csrc/base/mutex.h"
#include "csrc/peer/events.h"
#include "csrc/peer/time_account.h"

namespace pccl::peer {

class WaitRecord {
  struct Slot;

 public:
  WaitRecord() = default;
  WaitRecord(const WaitRecord&) = delete;
  WaitRecord& operator=(const WaitRecord&) = delete;

  // One wait of this thread, from its constructor to its destructor. A handler of a signal can wait
  // within a wait. Without a record it does nothing. REQUIRES: the record lives longer.
  class Wait {
   public:
    Wait(WaitRecord* record, const ThreadWait& wait);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    WaitRecord* const record_;
    Slot* const slot_;  // null: there is none
    const ThreadWait wait_;
    ThreadWait before_;
  };

  void calls() { (void)slot_of_this_thread(); }  // this thread makes a call
  // A Future of an operation that has not ended has begun, or its callbacks have run.
  void future_begins() { ++futures_; }
  void future_ends() { --futures_; }

  WaitsSeen look() const;

  // See TimeAccount.
  void judged(Handle operation, PeerId last, Instant called_at);
  void failed(Handle operation);
  void saved(Duration time);
  // A wait that goes on is in the totals, too: in `transferring` if data is `moving`, and otherwise
  // in `waiting`. Its verdict may change that.
  TimeTotals totals(Instant now, bool moving) const;

 private:
  struct alignas(64) Slot {  // a cache line: threads do not disturb each other
    std::atomic<uint64_t> thread{0};
    std::atomic<Handle> handle{0};
    std::atomic<int64_t> since{0};
    std::atomic<bool> bounded{false};
    ThreadWait wait() const;
    void set(const ThreadWait& wait);
  };
  Slot* slot_of_this_thread();
  void ended(const Slot& slot, const ThreadWait& wait);

  std::array<Slot, protocol::kBlockedWaitsMax> slots_;
  std::atomic<bool> full_{false};
  std::atomic<int64_t> futures_{0};
  mutable Mutex mutex_;
  TimeAccount account_ PCCL_GUARDED_BY(mutex_){monotonic_now()};
};

}  // namespace pccl::peer
