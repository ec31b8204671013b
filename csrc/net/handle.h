// Handle: a libuv handle and whom it calls. libuv wants a handle's memory until its close callback,
// a turn after it was closed, so handles are shared by their owner and by themselves: close() and
// forget it, in any callback, its own included. No callback comes after close(). A loop that ends
// closes all that are open. For csrc/net only.
#pragma once

#include <uv.h>

#include <functional>
#include <memory>

#include "csrc/base/clock.h"
#include "csrc/base/core_share.h"
#include "csrc/net/loop_inside.h"

namespace pccl::net {

class Handle : public std::enable_shared_from_this<Handle> {
 public:
  virtual ~Handle() = default;
  // Idempotent; also after the loop has ended, and in a forked child.
  void close();
  bool closed() const { return closed_; }

 protected:
  explicit Handle(std::shared_ptr<Loop::Inside> loop) : loop_(std::move(loop)) {}
  // Once libuv knows the handle.
  void opened(uv_handle_t* raw);
  // What was captured to be called is not needed any more.
  virtual void release() = 0;

  const std::shared_ptr<Loop::Inside> loop_;

 private:
  static void on_closed(uv_handle_t* raw);

  uv_handle_t* raw_ = nullptr;
  std::shared_ptr<Handle> self_;  // until libuv has closed it
  bool closed_ = false;
};

// Watcher: says when a socket can be read or written, as often as that is so. Close it before the
// socket.
class Watcher : public Handle {
 public:
  using Callback = std::function<void(bool readable, bool writable)>;
  static std::shared_ptr<Watcher> open(const std::shared_ptr<Loop::Inside>& loop, int fd,
                                       Callback callback);
  // What to say; nothing at first. An error of the socket is said as both.
  void watch(bool readable, bool writable);

 private:
  using Handle::Handle;
  static void on_events(uv_poll_t* raw, int status, int events);
  void release() override { callback_ = nullptr; }

  uv_poll_t poll_;
  int events_ = 0;
  Callback callback_;
};

// Alarm: calls back once at an instant, never before it. Arming again replaces.
class Alarm : public Handle {
 public:
  static std::shared_ptr<Alarm> open(const std::shared_ptr<Loop::Inside>& loop,
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

// Vigil: while it lasts the loop's thread does not sleep. It looks for events again and again, and
// offers its core to others in between.
class Vigil : public Handle {
 public:
  static std::shared_ptr<Vigil> open(const std::shared_ptr<Loop::Inside>& loop);
  // Whether the thread goes to another core when it has to share its own (CoreShare). Of two that
  // work for each other one may: both would meet again.
  void set_evasive(bool evasive) { evasive_ = evasive; }
  // From now on for so long; later calls replace earlier ones.
  void keep(Duration length);

 private:
  using Handle::Handle;
  static void on_turn(uv_idle_t* raw);
  void release() override {}

  uv_idle_t idle_;
  Instant until_{};
  bool evasive_ = false;
  CoreShare share_;
};

}  // namespace pccl::net
