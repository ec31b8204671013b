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

TEST(Condition, ANotificationEndsTheWait) {
  Mutex mutex;
  Condition changed;
  bool done = false;
  std::thread other([&] {
    const Lock lock(mutex);
    done = true;
    changed.notify_all();
  });
  {
    Lock lock(mutex);
    while (!done) changed.wait(lock);
  }
  other.join();
  EXPECT_TRUE(done);
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

TEST(Condition, ALongTimeDoesNotOverflow) {
  Mutex mutex;
  Condition changed;
  bool done = false;
  std::thread other([&] {
    const Lock lock(mutex);
    done = true;
    changed.notify_one();
  });
  bool in_time = true;
  {
    Lock lock(mutex);
    while (!done && in_time) in_time = changed.wait_until(lock, monotonic_now() + kForever);
  }
  other.join();
  EXPECT_TRUE(in_time);
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
