#include "csrc/base/contention_detector.h"

#include <sched.h>
#include <time.h>

#include "csrc/base/assert.h"

namespace pccl {
namespace {

// A thread that waits longer than this for a core has to share the core. The limit is longer than
// the short tasks of the system on a core, and shorter than the time slice of a thread.
constexpr Duration kWaitedMax = std::chrono::microseconds(300);
// If more time than this passes between two calls of waited(), the second call returns false: the
// thread may have slept meanwhile.
constexpr Duration kLooksApartMax = std::chrono::milliseconds(10);
constexpr int kManyCores = 8;

}  // namespace

bool ContentionDetector::waited(Instant now, Duration ran) {
  PCCL_DCHECK(now >= looked_at_ && ran >= ran_);
  const Duration passed = now - looked_at_;
  const Duration waited = passed - (ran - ran_);
  looked_at_ = now;
  ran_ = ran;
  return passed <= kLooksApartMax && waited > kWaitedMax;
}

Duration thread_ran() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void migrate() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  if (CPU_COUNT(&allowed) < 2 || CPU_COUNT(&allowed) >= kManyCores) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<size_t>(sched_getcpu()), &others);
  if (sched_setaffinity(0, sizeof others, &others) == 0)
    sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace pccl
