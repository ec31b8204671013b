// Loop: one libuv event loop on its own thread.
// Other threads hand work to it with post(), which any thread may call; post() takes the mutex.
//   1. Objects that belong to a loop are created, called and destroyed on its thread, or destroyed
//      after stop(). Their methods begin with assert_on_loop().
//   2. stop() runs all tasks posted before it, closes all open handles, then ends the thread.
//   3. Neither stop() nor the destructor may be called on the loop's own thread.
//   4. In a forked child there is no thread: post() drops its task, and stop() and the destructor
//      do nothing.
// Failure: if the loop cannot start (too many open files, no memory for a thread), status() returns
// the error and every task is dropped.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"

struct uv_loop_s;

namespace pccl::net {

class Alarm;

class Loop {
 public:
  struct Impl;  // for csrc/net only

  // Starts the thread. `name` is shown by top and gdb (at most 15 characters).
  explicit Loop(const std::string& name);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // kSystem if the loop could not start.
  const Status& status() const;
  // Any thread. Runs `task` on the loop, in the order of the post() calls. Dropped after stop().
  void post(std::function<void()> task);
  // Any thread except the loop's own. Idempotent.
  void stop();

  bool on_loop() const;
  // Asserts that this is the loop's thread. The text names the caller's place and the thread.
  void assert_on_loop(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  uv_loop_s* raw();                                            // for csrc/net only
  const std::shared_ptr<Impl>& impl() const { return impl_; }  // for csrc/net only

 private:
  std::shared_ptr<Impl> impl_;  // shared with the thread and with the objects on it
};

// Timer: calls back once at an instant, never before it and up to a millisecond after it. It
// belongs to a loop. A later arm() replaces an earlier one, and the destructor cancels the timer.
// The callback may arm or destroy it.
class Timer {
 public:
  Timer(Loop& loop, std::function<void()> callback);
  ~Timer();
  void arm(Instant at);
  void disarm();

 private:
  std::shared_ptr<Alarm> alarm_;  // libuv closes it one loop turn after ~Timer()
};

}  // namespace pccl::net
