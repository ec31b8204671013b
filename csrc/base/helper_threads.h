// HelperThreads: threads that share a loop of equal, independent steps with the thread that needs
// its result. A step takes microseconds: the loop is over soon, or the helpers are not used.
// The helpers start with the first loop that they can share. One thread at a time may call
// for_each().
// Invariants:
//   1. Each step runs once, on one thread. All have returned when for_each() returns, and no helper
//      uses `step` any more.
//   2. The caller never waits for a step that nobody has begun: it takes all that are left.
//   3. Helpers that bring nothing rest. If no helper took a step (all cores were busy), or the
//      caller waited long for the last step of one (its core was taken from it), the next loops run
//      on the caller alone: twice as many as the last time, at most kRestMax.
// Failure: if no thread can be started, the caller runs all steps alone.
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
  // Number of loops that run without helpers after they brought nothing.
  static constexpr uint32_t kRestMax = 1024;

  explicit HelperThreads(size_t helpers) : helpers_(helpers) {}
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  // The number of helpers for this process: a quarter of the cores that it may use, at most
  // kHelpersMax. So a process with fewer than 4 cores has none: they have other work.
  static size_t affordable();
  // For tests: as if the process could afford this number of helpers. nullopt: as it is.
  static void set_affordable(std::optional<size_t> helpers);

  size_t helpers() const { return helpers_; }
  // Runs step(worker, 0) to step(worker, count - 1).
  void for_each(size_t count, const Step& step);

 private:
  bool start();
  void help(size_t worker);
  void judge(bool helped, Duration waited);

  const size_t helpers_;
  std::vector<std::thread> threads_;
  uint32_t resting_ = 0;  // number of loops without helpers that follow
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
