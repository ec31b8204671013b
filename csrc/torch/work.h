// Operation and PcclWork: one posted collective as two parties see it. The Operation is shared by
// the peer, which ends it on the control loop, and by the PcclWork, which is the user's handle on
// it. Tensors live until the operation has ended and the handle is gone, and are never let go on
// the control loop: that may need the GIL, and the loop must not wait for Python. So whoever comes
// second lets go: the handle on the user's thread, or, when the user has dropped the handle first,
// a completer.
// A Future is made when somebody asks for one; a completer marks it. Callbacks of several Futures
// run side by side, or at once in then() if the operation is over: collectives that they call take
// their places in the order of calls as it comes, and need a tag of their own (or nothing else in
// flight) for ranks to agree on it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "csrc/base/clock.h"
#include "csrc/peer/shell.h"
#include "csrc/torch/staging.h"

namespace pccl::torch_layer {

class Operation {
 public:
  // `text` names it in messages: "all_reduce (layer.3)".
  Operation(std::unique_ptr<Lent> lent, std::string text);

  // The memory is the application's again. Once, on the control loop, which it never holds up.
  static void end(const std::shared_ptr<Operation>& operation, peer::OpResult result);

  // The handle's side. wait_until returns false when the operation is still going on then.
  bool wait_until(Instant deadline);
  bool ended() const;
  std::exception_ptr error() const;  // null while going on and on success
  c10::intrusive_ptr<c10::ivalue::Future> future();
  Tensors results() const;
  std::vector<peer::Part> parts() const;  // empty but after a success of one that is kept
  bool ended_before_call() const;         // it was settled for all when it was called here
  void abandon();                         // the handle goes away
  const std::string& text() const { return text_; }

 private:
  void finish(std::exception_ptr error);
  void mark(c10::ivalue::Future& future) const;

  const std::string text_;
  mutable std::mutex mutex_;  // never held while tensors or the GIL are touched
  std::condition_variable ended_cv_;
  bool ended_ = false;
  bool abandoned_ = false;
  std::exception_ptr error_;
  std::vector<peer::Part> parts_;  // this and the next are constant once ended
  bool ended_before_call_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::shared_ptr<Lent> lent_;
};

class PcclWork : public c10d::Work {
 public:
  PcclWork(std::shared_ptr<Operation> operation, int rank, c10d::OpType type, uint64_t sequence);
  ~PcclWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  // Ends with the operation, with KeyboardInterrupt on Ctrl-C, or after `timeout`. Only the first
  // is the operation's own end: after the others it goes on, and its tensors stay lent.
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  std::vector<peer::Part> parts() const { return operation_->parts(); }
  bool ended_before_call() const { return operation_->ended_before_call(); }

 private:
  const std::shared_ptr<Operation> operation_;
  const uint64_t sequence_;
  const uint64_t forks_;
};

}  // namespace pccl::torch_layer
