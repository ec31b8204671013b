// SyncCall is one sync_shared_state of this peer. During the call, a thread lends and checks
// pieces. This is the caller's thread or, in the background, a thread of the SyncCall: then the
// caller continues when all members have voted. Peer creates it. Any thread may call its methods,
// unless stated otherwise.
// Invariants:
//   1. The thread of the SyncCall writes only to staging buffers. The tensors are written when the
//      call is concluded.
//   2. The owner of the tensors' memory (InBackground::keeps) lives until the call has ended.
//   3. The call is concluded once; every later wait returns the same outcome. If no caller will
//      wait, it is concluded when it ends, and nothing is written.
// The work ends when the call ends: by the answer, by its timeout, or because the peer leaves.
// Failure: a thread that finds no memory gives the call up, with this error as the outcome.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "csrc/base/mutex.h"
#include "csrc/base/result.h"
#include "csrc/peer/shell/control.h"
#include "csrc/peer/shell/peer.h"

namespace pccl::peer {

class SyncCall {
 public:
  // `may_wait` returns the error of a thread that cannot wait for the end.
  SyncCall(Control& control, JointCalled event, std::shared_ptr<SharedEntries> entries,
           InBackground how, std::function<Status()> may_wait);
  ~SyncCall();  // waits for its thread. REQUIRES: the call has ended, or will soon
  SyncCall(const SyncCall&) = delete;
  SyncCall& operator=(const SyncCall&) = delete;

  // Makes the call, and works for it on this thread until it ends. Gives it up once `interrupted`
  // returns true. This thread calls `on_progress`, which may be empty.
  Result<JointResult> run(const Interrupted& interrupted, const OnProgress& on_progress);
  // Starts a thread, which works for the call, and makes the call. kSystem: no thread.
  Status start();
  // Waits until all members have voted, or the call has ended. False: `interrupted` has returned
  // true.
  bool wait_for_votes(const Interrupted& interrupted);
  // Waits until the call has ended. False: `until` has passed, or `interrupted` has returned true.
  // If this thread cannot wait (`may_wait`), returns true at once.
  bool wait_for_end(Instant until, const Interrupted& interrupted);
  // Waits like wait_for_end(), and returns the outcome. Nothing: `until` has passed, or
  // `interrupted` has returned true; then the call continues. Stale entries are overwritten here.
  std::optional<Result<JointResult>> wait(Instant until, const Interrupted& interrupted);

  bool ended() const;
  bool failed() const;    // it has ended with an error
  bool receives() const;  // this peer lacked entries when all had voted
  // Revision and hash of the elected state. REQUIRES: all have voted, or the call has ended well.
  std::pair<uint64_t, uint64_t> elected() const;
  bool concluded() const;                       // it has its outcome: nothing is lent any more
  std::optional<SyncProgress> take_progress();  // the latest progress, if it was not taken before
  void join();  // waits for the thread. REQUIRES: the call has ended. One thread at a time
  // No caller will wait for the call any more, and nothing is written. Its memory is released now,
  // or when the call ends.
  void abandon(Status why = {Code::kInvalidState, "nobody has waited for it", {}});
  void give_up();  // reports to the others that this peer cannot continue

 private:
  Status begin();
  void work(const Interrupted& interrupted);
  Result<JointResult> conclude();
  Result<JointResult> outcome_of(FinishJoint end, const Status& refused, const InBackground& how);
  enum class Until { kVotes, kEnd };
  bool wait_until(Until what, Instant deadline, const Interrupted& interrupted);

  Control& control_;
  JointCalled event_;
  const std::shared_ptr<Control::WaitingCall> call_ = std::make_shared<Control::WaitingCall>();
  InBackground how_;  // of the working thread, then of the thread that concludes the call
  const std::function<Status()> may_wait_;
  mutable Mutex mutex_;
  Condition changed_;
  bool awaited_ PCCL_GUARDED_BY(mutex_) = false;
  bool decided_ PCCL_GUARDED_BY(mutex_) = false;
  bool receives_ PCCL_GUARDED_BY(mutex_) = false;
  bool concluding_ PCCL_GUARDED_BY(mutex_) = false;  // some thread is concluding the call
  Status refusal_ PCCL_GUARDED_BY(mutex_);           // the reason why nothing is written; ok: none
  std::pair<uint64_t, uint64_t> elected_ PCCL_GUARDED_BY(mutex_);
  std::optional<SyncProgress> progress_ PCCL_GUARDED_BY(mutex_);
  std::optional<FinishJoint> end_ PCCL_GUARDED_BY(mutex_);
  std::optional<Result<JointResult>> outcome_ PCCL_GUARDED_BY(mutex_);
  std::thread thread_;  // works in the background
};

}  // namespace pccl::peer
