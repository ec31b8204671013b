#include "csrc/peer/shell/waiter.h"

namespace pccl::peer {

void Waiter::work(std::function<void()> task) { add({std::move(task), true}); }

void Waiter::tell(std::function<void()> task) { add({std::move(task), false}); }

void Waiter::add(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (result_) return;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void Waiter::finish(FinishJoint result) {
  {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    std::erase_if(tasks_, [](const Task& task) { return task.dropped_at_the_end; });
  }
  changed_.notify_all();
}

std::optional<FinishJoint> Waiter::wait(const Interrupted& interrupted) {
  std::unique_lock lock(mutex_);
  while (!result_ || !tasks_.empty()) {
    if (tasks_.empty()) {
      const auto something = [this] { return result_ || !tasks_.empty(); };
      if (!interrupted) {
        changed_.wait(lock, something);
      } else if (!changed_.wait_for(lock, kInterruptPeriod, something)) {
        lock.unlock();
        if (interrupted()) return std::nullopt;
        lock.lock();
      }
      continue;
    }
    std::vector<Task> tasks;
    tasks.swap(tasks_);
    lock.unlock();
    for (const Task& task : tasks) task.run();
    lock.lock();
  }
  return std::move(result_);
}

FinishJoint Waiter::end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return result_.has_value(); });
  tasks_.clear();
  return std::move(*result_);
}

}  // namespace pccl::peer
