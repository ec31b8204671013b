// DevicePoller: the thread that waits for devices. CUDA can call a host back, but not after an
// error of the device. A thread for each event would cost a core for each. So one thread per
// process polls. After each change it uses busy polling for 200 us. Then it sleeps for 50 us, and
// for longer and longer until 1 ms, as long as nothing changes. It starts with the first operation
// on device tensors. A forked child begins without one.
// Any thread may call it; a Watched is polled on its thread only.
// Failure: if the system has no thread left, watch() raises OSError.
#pragma once

#include <memory>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"

namespace pccl::torch_layer {

class DevicePoller {
 public:
  // Something that changes when a device has done its work. poll() never blocks.
  class Watched {
   public:
    enum class Progress {
      kNone,
      kSome,
      kWaits,  // nothing changes before somebody calls wake()
      kOver,   // it is not polled again; a thread of the CompletionExecutor calls release()
    };
    virtual ~Watched() = default;
    virtual Progress poll() = 0;
    virtual void release() = 0;  // may call CUDA and Python
  };

  static DevicePoller& get();

  void start();  // the thread, if it does not run
  void watch(std::shared_ptr<Watched> what);
  void wake();  // polls all soon, because one of them has changed
  // Waits until nothing is watched, or until `at_most` has passed. Then nothing is polled any more,
  // and an operation that is still watched is never released: the device may still use its memory.
  void end(Duration at_most);

 private:
  struct Seen {
    bool changed = false;
    bool waits = true;  // nothing changes before somebody calls wake()
  };
  void work();
  Seen poll_all();

  Mutex mutex_;
  Condition wake_;
  Condition quiet_;
  std::vector<std::shared_ptr<Watched>> fresh_ PCCL_GUARDED_BY(mutex_);
  bool started_ PCCL_GUARDED_BY(mutex_) = false;
  bool woken_ PCCL_GUARDED_BY(mutex_) = false;
  bool quiet_now_ PCCL_GUARDED_BY(mutex_) = true;
  bool ended_ PCCL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Watched>> watched_;  // of the thread
};

}  // namespace pccl::torch_layer
