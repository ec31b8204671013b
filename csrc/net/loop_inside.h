// loop_inside: what the objects of a loop see of it. For csrc/net only, on the loop only unless it
// says otherwise. Every callback from libuv ends with after_callback(), which lets the objects that
// asked for it act at the bottom of the stack: so a lane writes what was given to it in the same
// turn, and tells nobody about it from inside a call.
#pragma once

#include <uv.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "csrc/net/loop.h"

namespace pccl::net {

// Something that wants to act as soon as the callback under way is over.
class Deferred {
 public:
  virtual ~Deferred() = default;
  virtual void run_deferred() = 0;

 private:
  friend struct Loop::Inside;
  bool queued_ = false;
};

struct Loop::Inside : std::enable_shared_from_this<Inside> {
  // One callback is followed by at most so many deferred ones; the rest waits for the next turn.
  static constexpr size_t kDeferredMax = 64;
  static constexpr size_t kReadBufferBytes = 256u << 10;

  Status start(const std::string& thread_name);
  void run();
  void stop();
  void post(std::function<void()> task);
  bool on_loop() const;
  void assert_on_loop() const;
  // True in a child of the process that made the loop.
  bool orphaned() const;

  void defer(std::shared_ptr<Deferred> what);
  void after_callback();
  void handle_closed();
  // Where to read to for the length of one callback.
  std::span<std::byte> read_buffer();

  uv_loop_t uv;
  size_t handle_count = 0;  // open, `wake` included

 private:
  static void on_wake(uv_async_t* wake);
  void begin_end();
  void finish();

  // Constant once started.
  Status status_{Code::kInvalidState, "not started", {}};
  std::string name_;
  pthread_t thread_{};
  unsigned fork_count_ = 0;

  std::mutex mutex_;  // guards the next three
  std::vector<std::function<void()>> tasks_;
  bool stopping_ = false;
  bool ended_ = false;
  std::mutex join_mutex_;  // guards the next one
  bool joined_ = false;

  // The loop's own.
  uv_async_t wake_;
  bool ending_ = false;
  bool in_deferred_ = false;
  std::vector<std::function<void()>> running_;
  std::vector<std::shared_ptr<Deferred>> deferred_;
  std::vector<std::byte> read_buffer_;

  friend class Loop;
};

}  // namespace pccl::net
