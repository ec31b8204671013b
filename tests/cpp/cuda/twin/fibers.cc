#include <gtest/gtest.h>
#include <ucontext.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/cpp/cuda/twin/cuda_runtime.h"

#ifdef __SANITIZE_ADDRESS__
#define PCCL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PCCL_ASAN 1
#endif
#endif
#ifdef PCCL_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace pccl::twin {
namespace {

constexpr size_t kStackBytes = 256 << 10;

// A CUDA thread with a stack of its own.
struct Fiber {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  unsigned exchanges = 0;  // that this thread has begun
  // The values it showed. A thread may show the next one before all have read the last one.
  std::array<unsigned long long, 2> shown{};
  bool ended = false;
};

std::vector<Fiber> fibers;
const std::function<void()>* body = nullptr;
ucontext_t scheduler;
bool progress = false;  // whether a thread has done anything in this turn of all threads

// The address sanitizer must know on which stack the program is.
struct Switch {
  explicit Switch([[maybe_unused]] const void* stack, [[maybe_unused]] size_t bytes) {
#ifdef PCCL_ASAN
    __sanitizer_start_switch_fiber(&fake_, stack, bytes);
#endif
  }
  void back() const {
#ifdef PCCL_ASAN
    __sanitizer_finish_switch_fiber(fake_, nullptr, nullptr);
#endif
  }
  [[maybe_unused]] void* fake_ = nullptr;
};

const void* scheduler_stack = nullptr;
size_t scheduler_bytes = 0;

void arrive_first() {
#ifdef PCCL_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_bytes);
#endif
}

void yield() {
  const Switch change(scheduler_stack, scheduler_bytes);
  swapcontext(&fibers[threadIdx.x].context, &scheduler);
  change.back();
}

void run_fiber() {
  arrive_first();
  (*body)();
  fibers[threadIdx.x].ended = true;
  progress = true;
  yield();
}

void resume(unsigned thread) {
  threadIdx.x = thread;
  Fiber& fiber = fibers[thread];
  const Switch change(fiber.stack.get(), kStackBytes);
  swapcontext(&scheduler, &fiber.context);
  change.back();
}

void run_block(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    fiber.ended = false;
    fiber.exchanges = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &run_fiber, 0);
  }
  for (unsigned left = threads; left > 0;) {
    progress = false;
    for (unsigned i = 0; i < threads; ++i) {
      if (fibers[i].ended) continue;
      resume(i);
      if (fibers[i].ended) --left;
    }
    if (!progress) {
      ADD_FAILURE() << left << " of " << threads << " threads wait for others that never come";
      std::abort();  // the stacks of these threads cannot be unwound
    }
  }
}

}  // namespace

void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& thread) {
  if (fibers.size() < threads) fibers = std::vector<Fiber>(threads);
  body = &thread;
  gridDim.x = blocks;
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) run_block(threads);
}

unsigned long long exchange(unsigned mask, unsigned long long value, unsigned lane) {
  const unsigned self = threadIdx.x;
  const unsigned first = self / kWarp * kWarp;
  const unsigned number = ++fibers[self].exchanges;
  fibers[self].shown[number % 2] = value;
  progress = true;
  for (unsigned other = 0; other < kWarp; ++other) {
    if ((mask >> other & 1) == 0) continue;
    while (fibers[first + other].exchanges < number) yield();
  }
  return fibers[first + lane].shown[number % 2];
}

}  // namespace pccl::twin
