// BackgroundSync is a sync_shared_state whose caller continues when all members have voted. A
// thread of its own then lends and checks the pieces. Peer makes it, and concludes it for the
// thread that waits for its end. Any thread may call it.
// Invariants:
//   1. The thread writes only to staging buffers. The tensors are written when it is concluded.
//   2. The owner of the tensors' memory (InBackground::keeps) lives until the thread has ended.
//   3. It is concluded once; every later wait returns the same outcome. If no caller will wait, it
//      is concluded when the call ends, and nothing is written.
// The thread ends when the call ends: by the answer, by its timeout, or because the peer leaves.
// Failure: the thread finds no memory. It gives the call up, with this error as the outcome.
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

class BackgroundSync {
 public:
  using Conclude = std::function<Result<JointResult>(FinishJoint)>;

  // `give_up` reports to the others that this peer cannot continue. `await` reports to them, once,
  // that the caller waits for the end. `conclude` turns the end of the call into its outcome.
  BackgroundSync(std::shared_ptr<Control::WaitingCall> call, InBackground how,
                 std::function<void()> give_up, std::function<void()> await, Conclude conclude);
  ~BackgroundSync();  // waits for the thread. REQUIRES: the call has ended, or will soon

  Status start();  // kSystem: no thread. REQUIRES: not yet started
  // Until all have voted, or the call has ended. False if `interrupted` has returned true.
  bool wait_for_votes(const Interrupted& interrupted);
  // Until the call has ended; false at `until`, or if `interrupted` has returned true.
  bool wait(Instant until, const Interrupted& interrupted);
  bool ended() const;
  bool failed() const;    // it has ended with an error
  bool receives() const;  // this peer lacked entries when all had voted
  // Revision and hash of the elected state. REQUIRES: all have voted, or the call has ended well.
  std::pair<uint64_t, uint64_t> elected() const;
  // REQUIRES: ended. `may_install`: is asked before a tensor is written; its error is then the
  // outcome.
  Result<JointResult> conclude(const std::function<Status()>& may_install);

  bool concluded() const;
  std::optional<SyncProgress> take_progress();  // the latest one, once
  void join();  // waits for the thread. REQUIRES: the call has ended
  // No caller will wait for it any more. Its memory is released now, or when the call ends.
  void abandon();
  bool abandoned() const;

 private:
  void run();
  Result<JointResult> conclude_once(const std::function<Status()>& may_install);
  void release();
  enum class Until { kVotes, kEnd };
  bool wait_until(Until what, Instant deadline, const Interrupted& interrupted);

  const std::shared_ptr<Control::WaitingCall> call_;
  InBackground how_;  // of the thread; then of the one that concludes
  const std::function<void()> give_up_, await_;
  const Conclude conclude_;
  mutable Mutex mutex_;
  Condition changed_;
  bool awaited_ PCCL_GUARDED_BY(mutex_) = false;
  bool decided_ PCCL_GUARDED_BY(mutex_) = false;
  bool receives_ PCCL_GUARDED_BY(mutex_) = false;
  bool abandoned_ PCCL_GUARDED_BY(mutex_) = false;
  bool concluded_ PCCL_GUARDED_BY(mutex_) = false;
  std::pair<uint64_t, uint64_t> elected_ PCCL_GUARDED_BY(mutex_);
  std::optional<SyncProgress> progress_ PCCL_GUARDED_BY(mutex_);
  std::optional<FinishJoint> end_ PCCL_GUARDED_BY(mutex_);
  Mutex conclusion_;  // held while it is concluded
  std::optional<Result<JointResult>> outcome_ PCCL_GUARDED_BY(conclusion_);
  Mutex joining_;  // for the thread below, which may conclude
  std::thread thread_;
};

}  // namespace pccl::peer
