// DevicePoller: the thread that waits for devices. CUDA can call a function of the host, but not
// after an error of the device. One thread for each event would cost one core for each event. So
// one thread per process polls all of them. After each change it uses busy polling for 200 us.
// While nothing changes after that, it sleeps for 50 us, and then longer and longer, up to 1 ms. It
// starts with the first operation on device tensors. A forked child begins without a thread.
// Any thread may call it; a Watched is polled on its thread only.
// Failure: if the system has no thread left, start() raises OSError.
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
      kWaits,  // nothing changes before some thread calls wake()
      kOver,   // it is not polled again; a thread of the CompletionExecutor calls release()
    };
    virtual ~Watched() = default;
    virtual Progress poll() = 0;
    virtual void release() = 0;  // may call CUDA and Python
  };

  static DevicePoller& get();

  void start();  // the thread, if it does not run
  void watch(std::shared_ptr<Watched> what);
  void wake();  // polls all objects soon, because one of them has changed
  // Waits until nothing is watched, or until `at_most` has passed. Then nothing is polled any more,
  // and an operation that is still watched is never released: the device may still use its memory.
  void end(Duration at_most);

 private:
  struct Seen {
    bool changed = false;
    bool waits = true;  // nothing changes before some thread calls wake()
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
  std::vector<std::shared_ptr<Watched>> watched_;  // used by the thread only
};

}  // namespace pccl::torch_layer
