#include "csrc/base/helper_threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <system_error>

#include "csrc/base/assert.h"

namespace pccl {
namespace {

// If the caller waits longer than this for the last steps, a helper has lost its core.
constexpr Duration kWaitMax = std::chrono::microseconds(100);
// For this time, the caller polls for the end of the last steps. To sleep takes as long.
constexpr Duration kPolled = std::chrono::microseconds(20);

constexpr size_t kNotSet = SIZE_MAX;
std::atomic<size_t> g_affordable = kNotSet;

}  // namespace

void HelperThreads::set_affordable(std::optional<size_t> helpers) {
  g_affordable = helpers.value_or(kNotSet);
}

HelperThreads::~HelperThreads() {
  {
    const Lock lock(mutex_);
    PCCL_ASSERT(step_ == nullptr);
    over_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

size_t HelperThreads::affordable() {
  if (const size_t set = g_affordable; set != kNotSet) return set;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
  return std::min<size_t>(static_cast<size_t>(CPU_COUNT(&allowed)) / 4, kHelpersMax);
}

// Returns whether there are helpers.
bool HelperThreads::start() {
  try {
    while (threads_.size() < helpers_) {
      const size_t worker = threads_.size() + 1;
      threads_.emplace_back([this, worker] { help(worker); });
    }
  } catch (const std::system_error&) {
    resting_ = rest_ = kRestMax;  // no thread can be started at present
  }
  return !threads_.empty();
}

void HelperThreads::for_each(size_t count, const Step& step) {
  const bool alone = count < 2 || helpers_ == 0 || resting_ > 0;
  if (alone || !start()) {
    if (resting_ > 0 && count >= 2) --resting_;
    for (size_t index = 0; index < count; ++index) step(0, index);
    return;
  }
  {
    const Lock lock(mutex_);
    PCCL_ASSERT(step_ == nullptr && active_ == 0);
    step_ = &step;
    count_ = count;
    next_ = 0;
    helped_ = false;
    ++loops_;
  }
  begun_.notify_all();
  for (size_t index = next_++; index < count; index = next_++) step(0, index);
  const Instant done = monotonic_now();
  while (active_ > 0 && monotonic_now() - done < kPolled) {
  }
  Lock lock(mutex_);
  step_ = nullptr;
  while (active_ > 0) left_.wait(lock);  // each is in its last step
  const bool helped = helped_;
  lock.unlock();
  judge(helped, monotonic_now() - done);
}

void HelperThreads::judge(bool helped, Duration waited) {
  rest_ = helped && waited <= kWaitMax ? 0 : std::min(2 * rest_ + 1, kRestMax);
  resting_ = rest_;
}

void HelperThreads::help(size_t worker) {
  pthread_setname_np(pthread_self(), "pccl-helper");
  uint64_t seen = 0;  // the last loop that this thread has had a part in
  Lock lock(mutex_);
  while (true) {
    while (!over_ && (step_ == nullptr || loops_ == seen)) begun_.wait(lock);
    if (over_) return;
    seen = loops_;
    const Step& step = *step_;
    const size_t count = count_;
    ++active_;
    lock.unlock();
    bool helped = false;
    for (size_t index = next_++; index < count; index = next_++) {
      step(worker, index);
      helped = true;
    }
    lock.lock();
    helped_ = helped_ || helped;
    if (--active_ == 0) left_.notify_one();
  }
}

}  // namespace pccl
