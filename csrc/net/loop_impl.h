// loop_impl: the interface of a Loop for the objects that belong to it. For csrc/net only, and on
// the loop's thread only unless stated otherwise.
// Every callback from libuv ends with after_callback(). At the bottom of the stack, it runs the
// tasks that the loop's own thread has posted, and the objects that called defer(). So a task that
// one object on the loop posts for another one costs no wake-up. A lane writes its new data in the
// same loop turn, and makes no callback from inside a call.
#pragma once

#include <uv.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/helper_threads.h"
#include "csrc/base/mutex.h"
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
  ~Impl();
  // Limits of the work after one callback. `kDeferredMax`: deferred objects that run in one round.
  // `kOwnTasksMax`: tasks of the loop's own thread that run in one round. `kRoundsMax`: rounds. The
  // rest of the work waits for the next turn.
  static constexpr size_t kDeferredMax = 64;
  static constexpr size_t kOwnTasksMax = 256;
  static constexpr int kRoundsMax = 4;
  // A buffer of this size stays in the cache of a core. The buffer for helpers is larger, because
  // each of them takes a part.
  static constexpr size_t kReadBufferBytes = 256u << 10;
  static constexpr size_t kSharedReadBufferBytes = 1u << 20;

  Status start(const std::string& thread_name);
  void run();
  void stop();
  void post(std::function<void()> task);
  const Status& status() const { return status_; }
  bool on_loop() const;
  void assert_on_loop(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  // True in a forked child of the process that created the loop. Any thread.
  bool orphaned() const;

  void defer(std::shared_ptr<Deferred> what);
  void after_callback();
  // Runs only the deferred objects, for a callback that continues afterwards.
  void run_deferred();
  void handle_closed();
  // All handles are closed or closing: none may be opened any more.
  bool ending() const { return ending_; }
  // A buffer to read into, for the duration of one callback.
  std::span<std::byte> read_buffer();
  // The threads that share the work of this loop's thread.
  HelperThreads& helpers();

  uv_loop_t uv;
  size_t handle_count = 0;  // open handles, `wake_` and `before_poll_` included

 private:
  static void on_wake(uv_poll_t* wake, int status, int events);
  void wake() const;
  void run_own_tasks();
  void begin_end();
  void finish();

  // Constant after the start.
  Status status_{Code::kInvalidState, "not started", {}};
  std::string name_;
  pthread_t thread_{};
  // The eventfd that wakes the loop. uv_async_t (libuv 1.44) is not used: if the loop runs on the
  // core of the thread that wakes it, the loop would spin until that thread runs again.
  int wake_fd_ = -1;
  unsigned fork_count_ = 0;

  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ PCCL_GUARDED_BY(mutex_);
  bool stopping_ PCCL_GUARDED_BY(mutex_) = false;
  bool ended_ PCCL_GUARDED_BY(mutex_) = false;
  Mutex join_mutex_;
  bool joined_ PCCL_GUARDED_BY(join_mutex_) = false;

  // Used by the loop's thread only.
  uv_poll_t wake_;
  uv_prepare_t before_poll_;  // for callbacks that do not call after_callback()
  bool ending_ = false;
  bool in_deferred_ = false;
  std::vector<std::function<void()>> running_;
  std::vector<std::function<void()>> own_tasks_;  // posted by this thread
  std::vector<std::shared_ptr<Deferred>> deferred_;
  std::vector<std::byte> read_buffer_;
  std::optional<HelperThreads> helpers_;

  friend class Loop;
};

}  // namespace pccl::net
