// HelperThreads: threads that share a loop of equal, independent steps with the thread that needs
// its result. A step takes microseconds: the loop is over soon, or the helpers are not used.
// The helpers start with the first loop that they can share. One thread at a time may call
// for_each().
// Invariants:
//   1. Each step runs once, on one thread. All have returned when for_each() returns, and no helper
//      uses `step` any more.
//   2. The caller never waits for a step that nobody has begun: it takes all that are left.
//   3. Helpers that do not help rest. If no helper took a step, because all cores were busy, or the
//      caller waited long for the last step of a helper that had lost its core, ready() is false
//      for a while: twice as long as the last time, for at most kRestMax calls.
// Failure: if a thread cannot be started, there are fewer helpers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"

namespace pccl {

class HelperThreads {
 public:
  // `worker`: 0 for the caller, 1 to helpers() for a helper. No two steps with the same worker run
  // at the same time.
  using Step = std::function<void(size_t worker, size_t index)>;
  static constexpr size_t kHelpersMax = 4;
  // The largest number of calls of ready() that return false one after the other.
  static constexpr uint32_t kRestMax = 1024;

  explicit HelperThreads(size_t helpers) : helpers_(helpers) {}
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  // The number of helpers for this process: a quarter of the cores that it may use, and of the CPU
  // quota of its container, at most kHelpersMax. So a process with fewer than 4 cores has none:
  // they have other work.
  static size_t affordable();
  // For tests: as if the process could afford this number of helpers. nullopt: as it is.
  static void set_affordable(std::optional<size_t> helpers);

  size_t helpers() const { return helpers_; }
  // Whether the next loop is to be shared. Call it once for each loop that is long enough.
  bool ready();
  // Runs step(worker, 0) to step(worker, count - 1). REQUIRES: a step does not throw.
  void for_each(size_t count, const Step& step);

 private:
  void start();
  void help(size_t worker);
  void judge(bool helped, Duration waited);

  size_t helpers_;
  std::vector<std::thread> threads_;
  uint32_t resting_ = 0;  // number of calls of ready() that are still to return false
  uint32_t rest_ = 0;     // their number at the last time; 0: the helpers were useful

  std::atomic<size_t> next_ = 0;    // the next step that nobody has begun
  std::atomic<size_t> active_ = 0;  // helpers that may use step_
  Mutex mutex_;
  Condition begun_, left_;
  const Step* step_ PCCL_GUARDED_BY(mutex_) = nullptr;  // of the present loop; null: none
  size_t count_ PCCL_GUARDED_BY(mutex_) = 0;
  uint64_t loops_ PCCL_GUARDED_BY(mutex_) = 0;   // number of loops so far
  bool helped_ PCCL_GUARDED_BY(mutex_) = false;  // a helper has taken a step of this loop
  bool over_ PCCL_GUARDED_BY(mutex_) = false;
};

}  // namespace pccl
