#include "csrc/peer/shell/waiter.h"

#include "csrc/base/assert.h"

namespace pccl::peer {

void Waiter::work(std::function<void()> task) { add({std::move(task), true}); }

void Waiter::tell(std::function<void()> task) { add({std::move(task), false}); }

void Waiter::add(Task task) {
  {
    const Lock lock(mutex_);
    if (result_) return;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void Waiter::finish(FinishJoint result) {
  {
    const Lock lock(mutex_);
    PCCL_ASSERT(!result_);
    result_ = std::move(result);
    std::erase_if(tasks_, [](const Task& task) { return task.dropped_at_the_end; });
  }
  changed_.notify_all();
}

std::optional<FinishJoint> Waiter::wait(const Interrupted& interrupted, Duration period) {
  Instant asks = monotonic_now() + period;
  Lock lock(mutex_);
  while (!result_ || !tasks_.empty()) {
    if (tasks_.empty() && !interrupted) {
      changed_.wait(lock);
      continue;
    }
    if (tasks_.empty()) {
      if (changed_.wait_until(lock, asks) || result_ || !tasks_.empty()) continue;
      lock.unlock();
      if (interrupted()) return std::nullopt;
      asks = monotonic_now() + period;
      lock.lock();
      continue;
    }
    std::vector<Task> tasks;
    tasks.swap(tasks_);
    lock.unlock();
    for (const Task& task : tasks) task.run();
    asks = monotonic_now() + period;
    lock.lock();
  }
  return std::move(result_);
}

FinishJoint Waiter::end() {
  Lock lock(mutex_);
  while (!result_) changed_.wait(lock);
  tasks_.clear();
  return std::move(*result_);
}

}  // namespace pccl::peer
