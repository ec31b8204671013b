// Waiter: where a caller's thread waits for its join or joint call: for its end, and for work that
// it is to do meanwhile (hashing a shared state is too long for a loop). One thread waits, any
// thread calls the rest; the caller holds no lock while it waits or works.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "csrc/peer/shell.h"

namespace pccl::peer {

class Waiter {
 public:
  static constexpr Duration kInterruptPeriod = std::chrono::milliseconds(100);

  // To be run by the thread that waits; dropped after finish().
  void work(std::function<void()> task);
  void finish(FinishJoint result);
  // The end of the call, or nothing when `interrupted` said so. May be called again then.
  std::optional<FinishJoint> wait(const Interrupted& interrupted);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> tasks_;
  std::optional<FinishJoint> result_;
};

}  // namespace pccl::peer
