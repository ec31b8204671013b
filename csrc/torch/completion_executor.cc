#include "csrc/torch/completion_executor.h"

#include <pthread.h>

#include <system_error>
#include <thread>
#include <utility>

namespace pccl::torch_layer {
namespace {

constexpr size_t kIdleKept = 1;

// Never destroyed, because threads may still run in it when the process exits. A forked child
// replaces it: its threads do not exist there, and one of them may have held the mutex.
CompletionExecutor* g_executor = new CompletionExecutor;
[[maybe_unused]] const int g_executor_handler =
    pthread_atfork(nullptr, nullptr, [] { g_executor = new CompletionExecutor; });
thread_local bool g_is_executing = false;

}  // namespace

CompletionExecutor& CompletionExecutor::get() { return *g_executor; }

bool CompletionExecutor::is_executing() { return g_is_executing; }

void CompletionExecutor::run(Task task) {
  Lock lock(mutex_);
  queue_.push_back(std::move(task));
  if (queue_.size() <= idle_) {
    wake_.notify_one();
    return;
  }
  try {
    std::thread([this] { work(); }).detach();
    ++threads_;
  } catch (const std::system_error&) {
    // The system has no thread left. An existing thread takes the task later, or this one runs it.
    if (threads_ > 0) return;
    Task mine = std::move(queue_.back());
    queue_.pop_back();
    lock.unlock();
    mine();
  }
}

void CompletionExecutor::drain(Duration at_most) {
  Lock lock(mutex_);
  const Instant deadline = monotonic_now() + at_most;
  while (!queue_.empty() || threads_ != idle_) {
    if (!quiet_.wait_until(lock, deadline)) return;
  }
}

void CompletionExecutor::work() {
  pthread_setname_np(pthread_self(), "pccl-completer");
  g_is_executing = true;
  Lock lock(mutex_);
  while (true) {
    if (queue_.empty()) {
      if (idle_ == kIdleKept) break;
      ++idle_;
      if (threads_ == idle_) quiet_.notify_all();
      while (queue_.empty()) wake_.wait(lock);
      --idle_;
    }
    Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // releases the objects of the task, without the lock
    lock.lock();
  }
  --threads_;
  if (threads_ == idle_) quiet_.notify_all();
}

}  // namespace pccl::torch_layer
