// loop_impl: the interface of a Loop for the objects that belong to it. For csrc/net only, and on
// the loop's thread only unless stated otherwise.
// Every callback from libuv ends with after_callback(). It runs the objects that called defer(), at
// the bottom of the stack. So a lane writes what it was given in the same loop turn, and makes no
// callback from inside a call.
#pragma once

#include <uv.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/net/loop.h"

namespace pccl::net {

// Deferred: an object that needs to act as soon as the current callback is over.
class Deferred {
 public:
  virtual ~Deferred() = default;
  virtual void run_deferred() = 0;

 private:
  friend struct Loop::Impl;
  bool queued_ = false;
};

struct Loop::Impl : std::enable_shared_from_this<Impl> {
  // The most deferred objects that run after one callback. The rest waits for the next turn.
  static constexpr size_t kDeferredMax = 64;
  static constexpr size_t kReadBufferBytes = 256u << 10;

  Status start(const std::string& thread_name);
  void run();
  void stop();
  void post(std::function<void()> task);
  const Status& status() const { return status_; }
  bool on_loop() const;
  void assert_on_loop() const;
  // True in a forked child of the process that created the loop. Any thread.
  bool orphaned() const;

  void defer(std::shared_ptr<Deferred> what);
  void after_callback();
  void handle_closed();
  // A buffer to read into, for the duration of one callback.
  std::span<std::byte> read_buffer();

  uv_loop_t uv;
  size_t handle_count = 0;  // open handles, `wake_` included

 private:
  static void on_wake(uv_async_t* wake);
  void begin_end();
  void finish();

  // Constant after the start.
  Status status_{Code::kInvalidState, "not started", {}};
  std::string name_;
  pthread_t thread_{};
  unsigned fork_count_ = 0;

  std::mutex mutex_;  // guards the next three members
  std::vector<std::function<void()>> tasks_;
  bool stopping_ = false;
  bool ended_ = false;
  std::mutex join_mutex_;  // guards the next member
  bool joined_ = false;

  // Used by the loop's thread only.
  uv_async_t wake_;
  bool ending_ = false;
  bool in_deferred_ = false;
  std::vector<std::function<void()>> running_;
  std::vector<std::shared_ptr<Deferred>> deferred_;
  std::vector<std::byte> read_buffer_;

  friend class Loop;
};

}  // namespace pccl::net
