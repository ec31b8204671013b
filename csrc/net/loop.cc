#include "csrc/net/loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/log.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/handle.h"
#include "csrc/net/loop_impl.h"

namespace pccl::net {
namespace {

thread_local const Loop::Impl* t_current = nullptr;

// Keeps a loop that ended during a name lookup: the resolver's thread still reports to it when the
// lookup is done.
void keep_for_ever(std::shared_ptr<Loop::Impl> loop) {
  static auto* mutex = new Mutex;
  static auto* kept = new std::vector<std::shared_ptr<Loop::Impl>>;
  const Lock lock(*mutex);
  kept->push_back(std::move(loop));
}

// The signals that only the application's threads handle: all signals, except SIGPROF and except
// the signals that a thread causes by its own instructions.
sigset_t signals_of_others() {
  sigset_t set;
  sigfillset(&set);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF}) {
    sigdelset(&set, own);
  }
  return set;
}

}  // namespace

// ---- Starting and ending ----------------------------------------------------------------------

// The descriptor is closed only here, because other threads can write to it until the last holder
// of the loop is gone.
Loop::Impl::~Impl() {
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

Status Loop::Impl::start(const std::string& thread_name) {
  name_ = thread_name.substr(0, 15);
  fork_count_ = fork_count();
  const auto failed = [this](int error) {
    return Status{Code::kSystem, "cannot start thread " + name_ + ": " + uv_strerror(error), {}};
  };
  open_standard_descriptors();
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) return failed(-errno);
  int error = uv_loop_init(&uv);
  if (error != 0) return failed(error);
  PCCL_ASSERT(uv_poll_init(&uv, &wake_, wake_fd_) == 0);
  PCCL_ASSERT(uv_poll_start(&wake_, UV_READABLE, &Impl::on_wake) == 0);
  PCCL_ASSERT(uv_prepare_init(&uv, &before_poll_) == 0);
  wake_.data = before_poll_.data = this;
  handle_count = 2;
  const auto before_poll = [](uv_prepare_t* raw) {
    static_cast<Impl*>(raw->data)->after_callback();
  };
  PCCL_ASSERT(uv_prepare_start(&before_poll_, before_poll) == 0);
  auto* self = new std::shared_ptr<Impl>(shared_from_this());
  const sigset_t blocked = signals_of_others();
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto main = [](void* argument) -> void* {
    auto* passed = static_cast<std::shared_ptr<Impl>*>(argument);
    const std::shared_ptr<Impl> loop = std::move(*passed);
    delete passed;
    loop->run();
    return nullptr;
  };
  error = pthread_create(&thread_, nullptr, main, self);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return {};
  delete self;
  uv_close(reinterpret_cast<uv_handle_t*>(&wake_), nullptr);
  uv_close(reinterpret_cast<uv_handle_t*>(&before_poll_), nullptr);
  uv_run(&uv, UV_RUN_DEFAULT);
  uv_loop_close(&uv);
  return failed(-error);
}

void Loop::Impl::run() {
  t_current = this;
  pthread_setname_np(pthread_self(), name_.c_str());
  uv_run(&uv, UV_RUN_DEFAULT);  // until handle_closed() calls uv_stop()
  PCCL_ASSERT(ending_ && handle_count == 0);
  deferred_.clear();
  if (uv_loop_close(&uv) != 0) keep_for_ever(shared_from_this());
  finish();
  helpers_.reset();  // late tasks may have held lanes
}

void Loop::Impl::stop() {
  if (!status_.ok() || orphaned()) return;
  PCCL_ASSERT(!on_loop());
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  wake();
  const Lock lock(join_mutex_);
  if (!joined_) pthread_join(thread_, nullptr);
  joined_ = true;
}

// Closes all open handles, so that uv_run() can return. All tasks posted before stop() have run.
void Loop::Impl::begin_end() {
  ending_ = true;
  const auto close = [](uv_handle_t* raw, void* loop) {
    if (raw->data != loop && !uv_is_closing(raw)) static_cast<Handle*>(raw->data)->close();
  };
  uv_walk(&uv, close, this);
  const auto closed = [](uv_handle_t* raw) { static_cast<Impl*>(raw->data)->handle_closed(); };
  uv_close(reinterpret_cast<uv_handle_t*>(&wake_), closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&before_poll_), closed);
}

// Destroys the tasks that were posted too late. This happens on the loop's thread, because the
// objects that they hold may be destroyed only there.
void Loop::Impl::finish() {
  while (true) {
    while (!own_tasks_.empty()) std::exchange(own_tasks_, {}).clear();  // a destructor may post
    std::vector<std::function<void()>> late;
    const Lock lock(mutex_);
    if (tasks_.empty()) {
      ended_ = true;
      return;
    }
    late.swap(tasks_);
  }
}

void Loop::Impl::handle_closed() {
  --handle_count;
  if (ending_ && handle_count == 0) uv_stop(&uv);
}

// ---- Tasks ------------------------------------------------------------------------------------

void Loop::Impl::post(std::function<void()> task) {
  if (!status_.ok() || orphaned()) return;
  if (on_loop()) return own_tasks_.push_back(std::move(task));
  bool first = false;
  {
    const Lock lock(mutex_);
    if (ended_) return;  // the caller destroys `task`, after the lock is released
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (first) wake();  // without the lock, which the loop needs at once
}

void Loop::Impl::wake() const {
  const uint64_t one = 1;
  while (write(wake_fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void Loop::Impl::on_wake(uv_poll_t* wake, int, int) {
  auto* loop = static_cast<Impl*>(wake->data);
  uint64_t count = 0;
  while (read(loop->wake_fd_, &count, sizeof count) < 0 && errno == EINTR) {
  }
  bool stopping = false;
  {
    const Lock lock(loop->mutex_);
    stopping = loop->stopping_;
    loop->running_.swap(loop->tasks_);
  }
  for (std::function<void()>& task : loop->running_) {
    task();
    task = nullptr;
  }
  loop->running_.clear();
  loop->after_callback();
  if (stopping && !loop->ending_) loop->begin_end();
}

bool Loop::Impl::on_loop() const { return t_current == this; }
void Loop::Impl::assert_on_loop(const char* file, int line) const {
  if (on_loop()) return;
  const std::string what = "called on the thread " + name_;
  assertion_failed(what.c_str(), file, line);
}
bool Loop::Impl::orphaned() const { return fork_count() != fork_count_; }

void Loop::Impl::defer(std::shared_ptr<Deferred> what) {
  assert_on_loop();
  if (what->queued_) return;
  what->queued_ = true;
  deferred_.push_back(std::move(what));
}

void Loop::Impl::after_callback() {
  if (in_deferred_ || ending_) return;
  int rounds = 0;
  do {  // a deferred object may post a task
    run_own_tasks();
    run_deferred();
  } while (!own_tasks_.empty() && ++rounds < kRoundsMax);
  if (!own_tasks_.empty()) wake();
}

void Loop::Impl::run_own_tasks() {
  in_deferred_ = true;
  size_t done = 0;
  while (done < own_tasks_.size() && done < kOwnTasksMax) {
    const std::function<void()> next = std::move(own_tasks_[done++]);
    next();
  }
  in_deferred_ = false;
  own_tasks_.erase(own_tasks_.begin(), own_tasks_.begin() + static_cast<std::ptrdiff_t>(done));
}

void Loop::Impl::run_deferred() {
  if (in_deferred_) return;
  in_deferred_ = true;
  size_t done = 0;
  while (done < deferred_.size() && done < kDeferredMax) {
    const std::shared_ptr<Deferred> next = std::move(deferred_[done++]);
    next->queued_ = false;
    next->run_deferred();
  }
  in_deferred_ = false;
  deferred_.erase(deferred_.begin(), deferred_.begin() + static_cast<std::ptrdiff_t>(done));
  if (!deferred_.empty()) wake();
}

std::span<std::byte> Loop::Impl::read_buffer() {
  assert_on_loop();
  if (read_buffer_.empty())
    read_buffer_.resize(helpers().helpers() > 0 ? kSharedReadBufferBytes : kReadBufferBytes);
  return read_buffer_;
}

HelperThreads& Loop::Impl::helpers() {
  assert_on_loop();
  if (!helpers_) helpers_.emplace(HelperThreads::affordable());
  return *helpers_;
}

// ---- Loop -------------------------------------------------------------------------------------

Loop::Loop(const std::string& name) : impl_(std::make_shared<Impl>()) {
  impl_->status_ = Status{};  // set first: the new thread may read it at once
  const Status status = impl_->start(name);
  if (!status.ok()) {
    log(LogLevel::kError, status.message);
    impl_->status_ = status;
  }
}

Loop::~Loop() {
  // A forked child leaks the inherited loop: the thread may have left its memory in any state.
  if (impl_->orphaned()) new std::shared_ptr<Impl>(impl_);
  stop();
}

const Status& Loop::status() const { return impl_->status_; }
void Loop::post(std::function<void()> task) { impl_->post(std::move(task)); }
void Loop::stop() { impl_->stop(); }
bool Loop::on_loop() const { return impl_->on_loop(); }
void Loop::assert_on_loop(const char* file, int line) const { impl_->assert_on_loop(file, line); }
uv_loop_s* Loop::raw() { return &impl_->uv; }

// ---- Timer ------------------------------------------------------------------------------------

Timer::Timer(Loop& loop, std::function<void()> callback)
    : alarm_(Alarm::open(loop.impl(), std::move(callback))) {}
Timer::~Timer() { alarm_->close(); }
void Timer::arm(Instant at) { alarm_->arm(at); }
void Timer::disarm() { alarm_->disarm(); }

}  // namespace pccl::net
