#include "csrc/base/helper_threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>

namespace pccl {
namespace {

// Runs a loop; returns how often each step ran.
std::vector<int> runs_of(HelperThreads& threads, size_t count) {
  std::vector<int> runs(count);
  threads.for_each(count, [&](size_t, size_t index) { ++runs[index]; });
  return runs;
}

TEST(HelperThreads, RunEachStepOnce) {
  for (const size_t helpers : {0u, 1u, 3u}) {
    HelperThreads threads(helpers);
    for (size_t count = 0; count < 200; ++count)
      EXPECT_EQ(runs_of(threads, count), std::vector<int>(count, 1)) << helpers << ", " << count;
  }
}

// All steps must have begun before the first one ends, so that each needs a thread of its own.
TEST(HelperThreads, ShareTheSteps) {
  HelperThreads threads(2);
  std::vector<size_t> workers(3);
  bool shared = false;
  for (int attempt = 0; attempt < 100'000 && !shared; ++attempt) {  // a helper may come too late
    std::atomic<size_t> begun = 0;
    threads.for_each(3, [&](size_t worker, size_t index) {
      ++begun;
      const Instant until = monotonic_now() + std::chrono::milliseconds(100);
      while (begun < 3 && monotonic_now() < until) std::this_thread::yield();
      workers[index] = worker;
    });
    shared = std::set(workers.begin(), workers.end()).size() == 3;
  }
  EXPECT_TRUE(shared);
  EXPECT_EQ(std::set(workers.begin(), workers.end()), std::set<size_t>({0, 1, 2}));
}

// A worker has memory of its own: no two of its steps run at the same time.
TEST(HelperThreads, AWorkerHasOneStepAtATime) {
  HelperThreads threads(3);
  std::vector<uint64_t> sums(4);
  for (int loop = 0; loop < 2000; ++loop)
    threads.for_each(16, [&](size_t worker, size_t index) { sums[worker] += index; });
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  EXPECT_EQ(sum, 2000u * 120u);
}

// The helper is asleep in a step while the caller waits for it: it brings nothing.
TEST(HelperThreads, RestWhenTheyAreLate) {
  HelperThreads threads(1);
  int with_helper = 0;
  for (int loop = 0; loop < 100; ++loop) {
    std::atomic<bool> helped = false;
    if (!threads.ready()) continue;
    threads.for_each(2, [&](size_t worker, size_t) {
      if (worker == 1) helped = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(worker == 1 ? 30 : 1));
    });
    with_helper += helped ? 1 : 0;
  }
  EXPECT_LE(with_helper, 7);  // after loops 1, 3, 7, 15, 31, 63, each once
}

TEST(HelperThreads, WithoutHelpersNothingIsReady) {
  HelperThreads threads(0);
  EXPECT_FALSE(threads.ready());
}

TEST(HelperThreads, AProcessWithFewCoresHasNone) {
  EXPECT_LE(HelperThreads::affordable(), std::thread::hardware_concurrency() / 4);
}

}  // namespace
}  // namespace pccl
