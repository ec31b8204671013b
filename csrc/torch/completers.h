// Completers: the threads that do what the control loop must not do when an operation ends: copy
// staged tensors back, let go of tensors (which may need the GIL) and run the callbacks of Futures
// (which may run Python, take their time and wait for further collectives). A task that waits never
// keeps another from running: there is always one more thread when all are busy. One waits for work
// between tasks, the others end. Any thread may call it. It lives as long as the process; a forked
// child begins with an empty one of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "csrc/base/clock.h"

namespace pccl::torch_layer {

class Completers {
 public:
  using Task = std::function<void()>;

  static Completers& get();

  // Never blocks and never runs `task` itself, unless the system has no thread left. A task must
  // not throw.
  void run(Task task);
  // Waits until nothing is queued or running, or `at_most` has passed. Call it without the GIL.
  void drain(Duration at_most);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable quiet_;
  std::deque<Task> queue_;
  size_t threads_ = 0;
  size_t idle_ = 0;  // of them, those that wait for a task
};

}  // namespace pccl::torch_layer
