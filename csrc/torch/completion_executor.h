// CompletionExecutor: the threads that do the work that the peer loop must not do when an operation
// ends. They copy staged tensors back, release tensors (which may need the GIL), and run the
// callbacks of Futures (which may run Python, take long, and wait for further collectives). A
// process has one object, which lives as long as the process; a forked child begins with an empty
// object of its own. Any thread may call it.
// Invariants:
// 1. A task that waits never keeps another task from running: if all threads are busy, a new thread
//    starts.
// 2. Between tasks one thread stays and waits for work. The other threads end.
#pragma once

#include <deque>
#include <functional>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"

namespace pccl::torch_layer {

class CompletionExecutor {
 public:
  using Task = std::function<void()>;

  static CompletionExecutor& get();
  // Whether this thread is one of its threads.
  static bool is_executing();

  // Never blocks and never runs `task` itself, unless the system has no thread left. A task must
  // not throw.
  void run(Task task);
  // Waits until nothing is queued or running, or until `at_most` has passed. REQUIRES: the caller
  // does not hold the GIL.
  void drain(Duration at_most);

 private:
  void work();

  Mutex mutex_;
  Condition wake_;
  Condition quiet_;
  std::deque<Task> queue_ PCCL_GUARDED_BY(mutex_);
  size_t threads_ PCCL_GUARDED_BY(mutex_) = 0;
  size_t idle_ PCCL_GUARDED_BY(mutex_) = 0;  // threads that wait for a task
};

}  // namespace pccl::torch_layer
