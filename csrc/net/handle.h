// Handle: a libuv handle together with its callback. For csrc/net only, on the loop's thread.
// libuv needs a handle's memory until its close callback, one loop turn after the close. So the
// owner and the handle itself share the handle.
//   1. The owner may call close() and release its pointer in any callback, even in the callback of
//      this handle.
//   2. No callback comes after close().
//   3. A loop that ends closes all open handles.
#pragma once

#include <uv.h>

#include <functional>
#include <memory>

#include "csrc/base/clock.h"
#include "csrc/base/contention_detector.h"
#include "csrc/net/loop_impl.h"

namespace pccl::net {

class Handle : public std::enable_shared_from_this<Handle> {
 public:
  virtual ~Handle() = default;
  // Idempotent. May also be called after the loop has ended, and in a forked child.
  void close();
  bool closed() const { return closed_; }

 protected:
  explicit Handle(std::shared_ptr<Loop::Impl> loop) : loop_(std::move(loop)) {}
  // REQUIRES: libuv has initialized the handle.
  void opened(uv_handle_t* raw);
  // Destroys the callback with all that it has captured. Called when libuv has closed the handle.
  virtual void release() = 0;

  const std::shared_ptr<Loop::Impl> loop_;

 private:
  static void on_closed(uv_handle_t* raw);

  uv_handle_t* raw_ = nullptr;
  std::shared_ptr<Handle> self_;  // set until libuv has closed the handle
  bool closed_ = false;
};

// Watcher: reports that a socket is readable or writable, again in each loop turn until that is no
// longer true. Close it before the socket.
class Watcher : public Handle {
 public:
  using Callback = std::function<void(bool readable, bool writable)>;
  static std::shared_ptr<Watcher> open(const std::shared_ptr<Loop::Impl>& loop, int fd,
                                       Callback callback);
  // Selects the reported events. At first none is selected. A socket error is reported as both
  // events.
  void watch(bool readable, bool writable);

 private:
  using Handle::Handle;
  static void on_events(uv_poll_t* raw, int status, int events);
  void release() override { callback_ = nullptr; }

  uv_poll_t poll_;
  int events_ = 0;
  Callback callback_;
};

// Alarm: calls back once at an instant, never earlier. A later arm() replaces an earlier one.
class Alarm : public Handle {
 public:
  static std::shared_ptr<Alarm> open(const std::shared_ptr<Loop::Impl>& loop,
                                     std::function<void()> callback);
  void arm(Instant at);
  void disarm();

 private:
  using Handle::Handle;
  static void on_time(uv_timer_t* raw);
  void release() override { callback_ = nullptr; }

  uv_timer_t timer_;
  Instant at_;
  std::function<void()> callback_;
};

// BusyPoll: busy polling. While it is active, the loop's thread does not sleep. The thread polls
// for events in a loop and yields its core to other threads in between.
class BusyPoll : public Handle {
 public:
  static std::shared_ptr<BusyPoll> open(const std::shared_ptr<Loop::Impl>& loop);
  // Whether the thread migrates to another core when the contention detector (ContentionDetector)
  // finds that another thread uses its core. If two threads work for each other, enable this for
  // only one of the two: if both migrate, they meet on a core again.
  void set_may_migrate(bool may_migrate) { may_migrate_ = may_migrate; }
  // Polls from now on for `length`. A later call replaces an earlier one.
  void keep(Duration length);

 private:
  using Handle::Handle;
  static void on_turn(uv_idle_t* raw);
  void release() override {}

  uv_idle_t idle_;
  Instant until_{};
  bool may_migrate_ = false;
  ContentionDetector share_;
};

}  // namespace pccl::net
