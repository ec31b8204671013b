#include "csrc/torch/work.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "csrc/base/log.h"
#include "csrc/net/descriptors.h"
#include "csrc/torch/completion_executor.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/staged_operation.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {
namespace {

// Ctrl-C is noticed after at most this time.
constexpr Duration kSlice = std::chrono::milliseconds(100);

std::string seconds(std::chrono::milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(duration.count()) / 1000);
  return text;
}

}  // namespace

PostedOperation::PostedOperation(std::shared_ptr<BorrowedTensors> borrowed, std::string text)
    : text_(std::move(text)),
      staged_(borrowed->on_device() ? std::make_shared<StagedOperation>(borrowed) : nullptr),
      borrowed_(std::move(borrowed)) {}

void PostedOperation::posted(std::shared_ptr<peer::WaitRecord> waits, peer::Handle handle) {
  waits_ = std::move(waits);
  handle_ = handle;
}

void PostedOperation::end(const std::shared_ptr<PostedOperation>& operation,
                          peer::OpResult result) {
  operation->ended_before_call_ = result.ended_before_call;
  operation->source_ = result.source;
  const bool committed = result.status.ok();
  if (committed) operation->parts_ = std::move(result.parts);
  if (operation->staged_) operation->staged_->end(committed);
  if (!committed) return operation->finish(to_exception(result.status));
  if (operation->staged_) return;  // end_on_device() follows
  if (!operation->borrowed_->staged()) return operation->finish(nullptr);
  CompletionExecutor::get().run([operation] {
    try {
      operation->borrowed_->copy_back();
      operation->finish(nullptr);
    } catch (...) {  // no memory: checked tensors can fail in no other way
      operation->finish(std::current_exception());
    }
  });
}

void PostedOperation::end_on_device(const Status& status) {
  if (status.ok()) return finish(nullptr);
  finish(to_exception({status.code,
                       text_ +
                           " has succeeded on all ranks, but its result did not reach the "
                           "tensor, which may hold a part of it: " +
                           status.message,
                       {}}));
}

void PostedOperation::finish(std::exception_ptr error) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  std::shared_ptr<BorrowedTensors> last;
  {
    const Lock lock(mutex_);
    PCCL_ASSERT(!ended_);
    ended_ = true;
    error_ = std::move(error);
    future = future_;
    if (abandoned_) {
      last = std::move(borrowed_);
    } else if (future) {
      last = borrowed_;
    }
  }
  ended_cv_.notify_all();  // without the lock, which the waiting thread needs at once
  if (!last) return;
  CompletionExecutor::get().run(
      [future = std::move(future), last = std::move(last), error = error_, waits = waits_] {
        if (!future) return;
        if (error) {
          future->setError(error);
        } else {
          future->markCompleted(c10::IValue(last->results));
        }
        if (waits) waits->future_ends();
      });
}

bool PostedOperation::wait_until(Instant deadline) {
  Lock lock(mutex_);
  while (!ended_) {
    if (!ended_cv_.wait_until(lock, deadline)) return ended_;
  }
  return true;
}

bool PostedOperation::ended() const {
  const Lock lock(mutex_);
  return ended_;
}

std::exception_ptr PostedOperation::error() const {
  const Lock lock(mutex_);
  return error_;
}

Tensors PostedOperation::results() const {
  return ended() && !error() ? borrowed_->results : Tensors();
}

std::vector<peer::Part> PostedOperation::parts() const {
  return ended() && !error() ? parts_ : std::vector<peer::Part>();
}

int PostedOperation::source() const { return ended() && !error() ? source_ : -1; }

bool PostedOperation::ended_before_call() const { return ended() && ended_before_call_; }

c10::intrusive_ptr<c10::ivalue::Future> PostedOperation::future() {
  auto fresh =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  {
    const Lock lock(mutex_);
    if (future_) return future_;
    future_ = fresh;
    if (!ended_) {  // finish() has it marked later
      if (waits_) waits_->future_begins();
      return fresh;
    }
  }
  if (error_) {
    fresh->setError(error_);
  } else {
    fresh->markCompleted(c10::IValue(borrowed_->results));
  }
  return fresh;
}

void PostedOperation::abandon() {
  std::shared_ptr<BorrowedTensors> last;  // released here, on the user's thread
  const Lock lock(mutex_);
  if (ended_) last = std::move(borrowed_);
  abandoned_ = true;
}

PcclWork::PcclWork(std::shared_ptr<PostedOperation> operation, int rank, c10d::OpType type,
                   uint64_t sequence)
    : Work(rank, type),
      operation_(std::move(operation)),
      sequence_(sequence),
      forks_(net::fork_count()) {}

PcclWork::~PcclWork() {
  if (forks_ == net::fork_count()) operation_->abandon();
}

bool PcclWork::isCompleted() { return operation_->ended(); }
bool PcclWork::isSuccess() const { return operation_->ended() && !operation_->error(); }
int PcclWork::sourceRank() const {
  if (operation_->source() >= 0) return operation_->source();
  raise({Code::kInvalidState,
         "sourceRank() of " + operation_->text() +
             ": only a receive that has succeeded knows its sender. Call wait() first",
         {}});
}

std::exception_ptr PcclWork::exception() const { return operation_->error(); }
std::vector<at::Tensor> PcclWork::result() { return operation_->results(); }
c10::intrusive_ptr<c10::ivalue::Future> PcclWork::getFuture() { return operation_->future(); }

bool PcclWork::wait(std::chrono::milliseconds timeout) {
  if (forks_ != net::fork_count()) {
    raise({Code::kInvalidState, operation_->text() +
                                    " was started before this process was forked: only the process "
                                    "that started it can wait for it"});
  }
  // torch passes kNoTimeout if the caller of wait() gave no timeout.
  const Duration limit = timeout == kNoTimeout ? kForever : checked_timeout(timeout);
  const ReleaseGil no_gil;
  const Instant now = monotonic_now(), deadline = now + limit;
  const peer::WaitRecord::Wait wait = operation_->record_wait(now, timeout != kNoTimeout);
  while (true) {
    if (operation_->wait_until(std::min(monotonic_now() + kSlice, deadline))) break;
    if (interrupted()) raise_interrupt();
    if (monotonic_now() < deadline) continue;
    raise({Code::kOperationTimeout, "wait() of " + operation_->text() +
                                        " ended after its timeout of " + seconds(timeout) +
                                        ", but the operation goes on and its tensor stays lent: "
                                        "wait again, or give the group a timeout, "
                                        "which ends it on all ranks"});
  }
  if (const std::exception_ptr error = operation_->error()) std::rethrow_exception(error);
  return true;
}

}  // namespace pccl::torch_layer
