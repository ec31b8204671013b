// Waiter is the place at which a caller's thread waits for the end of its join or joint call. In
// the meantime the thread does work that takes too long for a loop: it hashes a shared state. One
// thread calls wait(), and any thread calls the rest. The caller holds no lock while it waits or
// works.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "csrc/peer/shell/peer.h"

namespace pccl::peer {

class Waiter {
 public:
  static constexpr Duration kInterruptPeriod = std::chrono::milliseconds(100);

  // The waiting thread runs the task. It is dropped after finish().
  void work(std::function<void()> task);
  void finish(FinishJoint result);
  // The end of the call, or nothing if `interrupted` returned true. May then be called again.
  std::optional<FinishJoint> wait(const Interrupted& interrupted);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> tasks_;
  std::optional<FinishJoint> result_;
};

}  // namespace pccl::peer
