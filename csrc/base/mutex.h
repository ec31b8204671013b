// mutex: std::mutex, its lock and its condition variable with annotations. With these annotations
// clang checks at compile time (-Wthread-safety, in `make lint`) that a guarded member is used only
// while its lock is held. Write PCCL_GUARDED_BY(mutex_) behind a member, and PCCL_REQUIRES(mutex_)
// behind a function whose caller must hold the lock. The analysis does not see into a lambda: wait
// for a condition in a loop, not with a predicate.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#include "csrc/base/clock.h"

#if defined(__clang__)
#define PCCL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define PCCL_THREAD_ANNOTATION(x)
#endif
#define PCCL_CAPABILITY(x) PCCL_THREAD_ANNOTATION(capability(x))
#define PCCL_SCOPED_CAPABILITY PCCL_THREAD_ANNOTATION(scoped_lockable)
#define PCCL_GUARDED_BY(x) PCCL_THREAD_ANNOTATION(guarded_by(x))
#define PCCL_REQUIRES(...) PCCL_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define PCCL_ACQUIRE(...) PCCL_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define PCCL_ACQUIRE_SHARED(...) PCCL_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define PCCL_RELEASE(...) PCCL_THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))

namespace pccl {

class PCCL_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class Lock;
  std::mutex mutex_;
};

class PCCL_SCOPED_CAPABILITY Lock {
 public:
  explicit Lock(Mutex& mutex) PCCL_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~Lock() PCCL_RELEASE() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() PCCL_ACQUIRE() { lock_.lock(); }
  void unlock() PCCL_RELEASE() { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

class Condition {
 public:
  // wait() and wait_until() may return early: call them in a loop that checks the condition.
  void wait(Lock& lock) { condition_.wait(lock.lock_); }
  // Returns false at the deadline.
  bool wait_until(Lock& lock, Instant deadline) {
    const std::chrono::steady_clock::time_point until(deadline.since_start);
    return condition_.wait_until(lock.lock_, until) == std::cv_status::no_timeout;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

// Many threads may hold it at the same time by SharedLock, or one thread alone by ExclusiveLock.
class PCCL_CAPABILITY("mutex") SharedMutex {
 private:
  friend class ExclusiveLock;
  friend class SharedLock;
  std::shared_mutex mutex_;
};

class PCCL_SCOPED_CAPABILITY ExclusiveLock {
 public:
  explicit ExclusiveLock(SharedMutex& mutex) PCCL_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~ExclusiveLock() PCCL_RELEASE() = default;
  ExclusiveLock(const ExclusiveLock&) = delete;
  ExclusiveLock& operator=(const ExclusiveLock&) = delete;

 private:
  std::unique_lock<std::shared_mutex> lock_;
};

class PCCL_SCOPED_CAPABILITY SharedLock {
 public:
  explicit SharedLock(SharedMutex& mutex) PCCL_ACQUIRE_SHARED(mutex) : lock_(mutex.mutex_) {}
  ~SharedLock() PCCL_RELEASE() = default;
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  std::shared_lock<std::shared_mutex> lock_;
};

}  // namespace pccl
