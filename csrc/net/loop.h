// Loop: one libuv event loop on one thread of its own. post() is the door between threads and holds
// the mutex. Objects that belong to a loop are made, called and destroyed on it, or destroyed after
// stop(); their methods open with assert_on_loop(). A loop that could not start (too many open
// files, no memory for a thread) says so in status() and drops every task. stop() runs what was
// posted before it, closes what is still open, then ends the thread. Never call stop() or the
// destructor on the loop. In a forked child there is no thread: post() drops, stop() and the
// destructor do nothing.
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
  struct Inside;  // for csrc/net only

  // Starts the thread; `name` is what top and gdb show (15 characters).
  explicit Loop(const std::string& name);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // kSystem when the loop could not start.
  const Status& status() const;
  // Any thread. Runs `task` on the loop, in the order of posting. After stop(): dropped.
  void post(std::function<void()> task);
  // Any thread but the loop's own. Idempotent.
  void stop();

  bool on_loop() const;
  void assert_on_loop() const;
  uv_loop_s* raw();                                                  // for csrc/net only
  const std::shared_ptr<Inside>& inside() const { return inside_; }  // likewise

 private:
  std::shared_ptr<Inside> inside_;  // shared with the thread and with what lives on it
};

// Timer: calls back once at an instant, never before it, up to a millisecond after it. Belongs to a
// loop; arming again replaces, destroying cancels. The callback may do both.
class Timer {
 public:
  Timer(Loop& loop, std::function<void()> callback);
  ~Timer();
  void arm(Instant at);
  void disarm();

 private:
  std::shared_ptr<Alarm> alarm_;  // libuv closes it a turn later than we let go of it
};

}  // namespace pccl::net
