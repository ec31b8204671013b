// PostedOperation and PcclWork: one posted collective. The peer ends it on the peer loop (a
// SparseReduction on another thread). The PcclWork is the user's handle. Both share the
// PostedOperation.
// Invariants:
// 1. Tensors live until the operation has ended and the handle is gone.
// 2. The peer loop never releases tensors: this may need the GIL, and the loop must not wait for
//    Python. If the handle goes last, it releases the tensors on the user's thread. If the
//    operation ends last, a thread of the CompletionExecutor releases them.
// Futures: the first call of getFuture() makes the Future, and a thread of the CompletionExecutor
// marks it. If the operation has already ended, getFuture() marks it at once. Callbacks of several
// Futures run concurrently, or at once in then() if the operation is over. So the collectives that
// callbacks call have no certain order among all calls. The ranks agree on them only if each has a
// tag of its own (or nothing else is in flight).
// Hooks (hooks.h): if a thread waits for the operation, it runs the hooks before its wait ends. If
// there is a Future, they have run, or run on the waiting thread, when it is marked. Otherwise a
// thread of the CompletionExecutor runs them at some time.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"
#include "csrc/peer/shell/peer.h"
#include "csrc/peer/shell/wait_record.h"
#include "csrc/torch/borrowed_tensors.h"

namespace pccl::torch_layer {

class Hooks;
class StagedOperation;

class PostedOperation : public std::enable_shared_from_this<PostedOperation> {
 public:
  // `text`: the name of the operation in messages, "all_reduce (layer.3)".
  PostedOperation(std::shared_ptr<BorrowedTensors> borrowed, std::string text,
                  std::shared_ptr<Hooks> hooks);

  // Ends the operation: its memory belongs to the application again. Called once, usually on the
  // peer loop, which it never blocks.
  static void end(const std::shared_ptr<PostedOperation>& operation, peer::OpResult result);
  // An operation on device tensors has committed. `status`: ok if its results are on the device,
  // otherwise the error that prevents this.
  void end_on_device(const Status& status);
  // The peer has taken the operation. Its waits, and the callbacks of its Future, are recorded from
  // now on. REQUIRES: no other thread has the handle yet.
  void posted(std::shared_ptr<peer::WaitRecord> waits, peer::Handle handle);
  // Null unless the tensors are on a device.
  const std::shared_ptr<StagedOperation>& staged() const { return staged_; }

  // Runs the hooks for the end of the operation, unless another thread does it or has done it.
  // REQUIRES: the operation has ended; this thread is no peer loop.
  void report_end();

  // The functions that the handle uses.
  // A thread begins to wait, and ends its wait. end_wait() runs the hooks, if they are to run here.
  void begin_wait();
  void end_wait();
  // Returns false if the operation has not ended by `deadline`. REQUIRES: between begin_wait() and
  // end_wait().
  bool wait_until(Instant deadline);
  // Records a wait of this thread, until the result is destroyed.
  peer::WaitRecord::Wait record_wait(Instant now, bool bounded) const {
    return {waits_.get(), {handle_, now, bounded}};
  }
  bool ended() const;
  std::exception_ptr error() const;  // null before the end and on success
  c10::intrusive_ptr<c10::ivalue::Future> future();
  Tensors results() const;
  std::vector<peer::Part> parts() const;  // empty unless an operation with keep has succeeded
  bool ended_before_call() const;  // it was settled for all members before it was called here
  int source() const;              // of a receive that succeeded: the rank of the sender
  // From the call to the end; none if the operation has not ended, or was not measured.
  std::optional<float> milliseconds() const;
  // No other operation of this process ever has it.
  uint64_t key() const { return key_; }
  void abandon();  // the handle goes away
  const std::string& text() const { return text_; }

 private:
  // `error`: null if `code` is kOk.
  void finish(Code code, std::exception_ptr error);

  const std::string text_;
  const std::shared_ptr<Hooks> hooks_;
  const uint64_t key_;
  const std::optional<Instant> posted_at_;  // none: the operation is not measured
  const std::shared_ptr<StagedOperation> staged_;
  std::shared_ptr<peer::WaitRecord> waits_;  // constant once posted, like the handle; may be null
  peer::Handle handle_ = 0;
  mutable Mutex mutex_;  // never held while tensors or the GIL are touched
  Condition ended_cv_;
  bool ended_ = false;
  bool abandoned_ = false;
  int waiting_ = 0;        // number of threads between begin_wait() and end_wait()
  Code code_ = Code::kOk;  // constant once ended, like the next two fields
  std::optional<float> milliseconds_;
  std::exception_ptr error_;
  std::vector<peer::Part> parts_;  // constant once ended, like the next two fields
  bool ended_before_call_ = false;
  int source_ = -1;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<bool> reported_{false};  // a thread runs the hooks, or has run them
  std::shared_ptr<BorrowedTensors> borrowed_;
};

class PcclWork : public c10d::Work {
 public:
  PcclWork(std::shared_ptr<PostedOperation> operation, int rank, c10d::OpType type,
           uint64_t sequence);
  ~PcclWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  // The rank of the sender. REQUIRES: a receive that has succeeded; otherwise it raises.
  int sourceRank() const override;
  std::exception_ptr exception() const override;
  // Returns or raises when the operation has ended, raises KeyboardInterrupt on Ctrl-C, and raises
  // OperationTimeoutError after `timeout`. In the last two cases the operation continues, and its
  // tensors stay borrowed. kNoTimeout is no limit, also if a caller passes it: torch's Python
  // uses the same value for "not given".
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  // Milliseconds from the call to the end. Raises if the operation has not ended, or was called
  // before enableCollectivesTiming().
  float getDuration() const override;
  // In newer torch only, hence no `override`. Completion hooks get this key.
  virtual uint64_t getCompletionKey() const { return operation_->key(); }
  std::vector<peer::Part> parts() const { return operation_->parts(); }
  bool ended_before_call() const { return operation_->ended_before_call(); }

 private:
  const std::shared_ptr<PostedOperation> operation_;
  const uint64_t sequence_;
  const uint64_t forks_;
};

}  // namespace pccl::torch_layer
