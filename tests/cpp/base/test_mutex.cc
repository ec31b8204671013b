#include "csrc/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace pccl {
namespace {

TEST(Mutex, ALockKeepsOtherThreadsOut) {
  Mutex mutex;
  int sum = 0;
  const auto count = [&] {
    for (int i = 0; i < 10000; ++i) {
      const Lock lock(mutex);
      ++sum;
    }
  };
  std::thread other(count);
  count();
  other.join();
  EXPECT_EQ(sum, 20000);
}

// Another thread notifies this one, which is certain to wait by then: it holds the lock until it
// waits. Returns whether no wait ended early.
template <typename Wait>
bool waits_for_the_notification(const Wait& wait) {
  Mutex mutex;
  Condition changed;
  bool done = false, in_time = true;
  Lock lock(mutex);
  std::thread other([&] {
    const Lock own(mutex);
    done = true;
    changed.notify_one();
  });
  while (!done && in_time) in_time = wait(changed, lock);
  lock.unlock();
  other.join();
  return in_time;
}

TEST(Condition, ANotificationEndsTheWait) {
  EXPECT_TRUE(waits_for_the_notification([](Condition& changed, Lock& lock) {
    changed.wait(lock);
    return true;
  }));
}

TEST(Condition, ALongTimeDoesNotOverflow) {
  EXPECT_TRUE(waits_for_the_notification([](Condition& changed, Lock& lock) {
    return changed.wait_until(lock, monotonic_now() + kForever);
  }));
}

TEST(Condition, TheDeadlineEndsTheWait) {
  Mutex mutex;
  Condition changed;
  Lock lock(mutex);
  const Instant deadline = monotonic_now() + std::chrono::milliseconds(2);
  while (changed.wait_until(lock, deadline)) {
  }
  EXPECT_GE(monotonic_now(), deadline);
}

TEST(SharedMutex, SharersDoNotExcludeEachOther) {
  SharedMutex mutex;
  int seen = 0;
  {
    const SharedLock first(mutex);
    std::thread other([&] {
      const SharedLock second(mutex);
      seen = 1;
    });
    other.join();
  }
  const ExclusiveLock alone(mutex);
  EXPECT_EQ(seen, 1);
}

}  // namespace
}  // namespace pccl
