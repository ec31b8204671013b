// Waiter is the place where a caller's thread waits for the end of its join or joint call. In the
// meantime the thread does work that takes too long for a loop: it hashes a shared state. One
// thread calls wait(), and any thread may call the other methods. The caller holds no lock while it
// waits or works.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/peer/shell/peer.h"

namespace pccl::peer {

class Waiter {
 public:
  static constexpr Duration kInterruptPeriod = std::chrono::milliseconds(100);
  // For a call that another thread of the application may end.
  static constexpr Duration kInterruptPeriodShort = std::chrono::milliseconds(20);

  // The waiting thread runs the task. finish() drops the tasks that were not run yet.
  void work(std::function<void()> task);
  // Like work(), but finish() does not drop the task.
  void tell(std::function<void()> task);
  void finish(FinishJoint result);  // call it once
  // Runs tasks until the call ends. Returns the end of the call, or nothing if `interrupted` has
  // returned true; then wait() may be called again. If a task throws, wait() throws the same
  // exception; after that only end() may be called.
  // `period`: between two calls of `interrupted`.
  std::optional<FinishJoint> wait(const Interrupted& interrupted,
                                  Duration period = kInterruptPeriod);
  // Waits for the end of the call and returns it. No task is run any more.
  FinishJoint end();

 private:
  Mutex mutex_;
  Condition changed_;
  struct Task {
    std::function<void()> run;
    bool dropped_at_the_end = true;
  };
  void add(Task task);

  std::vector<Task> tasks_ PCCL_GUARDED_BY(mutex_);
  std::optional<FinishJoint> result_ PCCL_GUARDED_BY(mutex_);
};

}  // namespace pccl::peer
