#include "csrc/base/helper_threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "csrc/base/assert.h"

namespace pccl {
namespace {

// If the caller waits longer than this for the last steps, a helper has lost its core.
constexpr Duration kWaitMax = std::chrono::microseconds(100);
// For this time, the caller polls for the end of the last steps. To fall asleep and to wake up
// would take as long.
constexpr Duration kPolled = std::chrono::microseconds(20);

constexpr size_t kNotSet = SIZE_MAX;
std::atomic<size_t> g_affordable = kNotSet;

// The CPU quota of the container (cgroup v2), in cores.
size_t quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double used = 0, period = 0;  // `used` is the word "max" without a quota
  return file >> used >> period && period > 0 ? static_cast<size_t>(used / period) : SIZE_MAX;
}

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
  const auto cores = static_cast<size_t>(CPU_COUNT(&allowed));
  return std::min(std::min(cores, quota()) / 4, kHelpersMax);
}

void HelperThreads::start() {
  try {
    while (threads_.size() < helpers_) {
      const size_t worker = threads_.size() + 1;
      threads_.emplace_back([this, worker] { help(worker); });
    }
  } catch (const std::system_error&) {
    helpers_ = threads_.size();
  }
}

bool HelperThreads::ready() {
  if (resting_ == 0) return helpers_ > 0;
  --resting_;
  return false;
}

void HelperThreads::for_each(size_t count, const Step& step) {
  start();
  if (helpers_ == 0) {
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
  {
    const Lock lock(mutex_);
    step_ = nullptr;  // no helper begins any more
  }
  const Instant done = monotonic_now();
  while (active_ > 0 && monotonic_now() - done < kPolled) {
  }
  Lock lock(mutex_);
  while (active_ > 0) left_.wait(lock);  // each helper is in its last step
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
