#include "csrc/torch/work.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "csrc/base/log.h"
#include "csrc/net/descriptors.h"
#include "csrc/torch/completion_executor.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/hooks.h"
#include "csrc/torch/staged_operation.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {
namespace {

// Ctrl-C is noticed after at most this time.
constexpr Duration kSlice = std::chrono::milliseconds(100);

// This thread waits for the operation, until the object is destroyed.
class WaitScope {
 public:
  explicit WaitScope(PostedOperation& operation) : operation_(operation) {
    operation_.begin_wait();
  }
  ~WaitScope() { operation_.end_wait(); }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  PostedOperation& operation_;
};

std::string seconds(std::chrono::milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(duration.count()) / 1000);
  return text;
}

std::atomic<uint64_t> g_last_key{0};

}  // namespace

PostedOperation::PostedOperation(std::shared_ptr<BorrowedTensors> borrowed, std::string text,
                                 std::shared_ptr<Hooks> hooks)
    : text_(std::move(text)),
      hooks_(std::move(hooks)),
      key_(++g_last_key),
      posted_at_(hooks_->timed ? std::optional(monotonic_now()) : std::nullopt),
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
  if (!committed) return operation->finish(result.status.code, to_exception(result.status));
  if (operation->staged_) return;  // end_on_device() follows
  if (!operation->borrowed_->staged()) return operation->finish(Code::kOk, nullptr);
  CompletionExecutor::get().run([operation] {
    try {
      operation->borrowed_->copy_back();
      operation->finish(Code::kOk, nullptr);
    } catch (...) {  // no memory: checked tensors can fail in no other way
      operation->finish(Code::kSystem, std::current_exception());
    }
  });
}

void PostedOperation::end_on_device(const Status& status) {
  if (status.ok()) return finish(Code::kOk, nullptr);
  finish(status.code, to_exception({status.code,
                                    text_ +
                                        " has succeeded on all ranks, but its result did not "
                                        "reach the tensor, which may hold a part of it: " +
                                        status.message,
                                    {}}));
}

void PostedOperation::finish(Code code, std::exception_ptr error) {
  using Milliseconds = std::chrono::duration<float, std::milli>;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  std::shared_ptr<BorrowedTensors> last;
  bool reports = hooks_->want(code);
  {
    const Lock lock(mutex_);
    PCCL_ASSERT(!ended_);
    ended_ = true;
    code_ = code;
    error_ = std::move(error);
    if (posted_at_) milliseconds_ = Milliseconds(monotonic_now() - *posted_at_).count();
    future = future_;
    if (abandoned_) {
      last = std::move(borrowed_);
    } else if (future) {
      last = borrowed_;
    }
    if (waiting_ > 0 && !future) reports = false;  // end_wait() reports
  }
  ended_cv_.notify_all();  // without the lock, which the waiting thread needs at once
  if (reports && !last) {
    Hooks::report_later(shared_from_this());
    reports = false;
  }
  if (!last) return;
  CompletionExecutor::get().run([self = reports ? shared_from_this() : nullptr,
                                 future = std::move(future), last = std::move(last), error = error_,
                                 waits = waits_] {
    // If the system has no thread left, the peer loop runs this task. It runs no hooks.
    if (self && CompletionExecutor::is_executing()) self->report_end();
    if (!future) return;
    if (error) {
      future->setError(error);
    } else {
      future->markCompleted(c10::IValue(last->results));
    }
    if (waits) waits->future_ends();
  });
}

void PostedOperation::report_end() {
  if (reported_.exchange(true)) return;
  const ReleaseGil no_gil;
  hooks_->run(code_, key_, milliseconds_);
}

void PostedOperation::begin_wait() {
  const Lock lock(mutex_);
  ++waiting_;
}

void PostedOperation::end_wait() {
  {
    const Lock lock(mutex_);
    PCCL_ASSERT(waiting_ > 0);
    --waiting_;
    if (!ended_) return;
  }
  if (hooks_->want(code_)) report_end();
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

std::optional<float> PostedOperation::milliseconds() const {
  const Lock lock(mutex_);
  return milliseconds_;
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

float PcclWork::getDuration() const {
  const std::optional<float> milliseconds = operation_->milliseconds();
  return milliseconds ? *milliseconds : Work::getDuration();  // the latter raises
}

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
  const WaitScope scope(*operation_);  // runs hooks at its end, which are no wait for a peer
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
