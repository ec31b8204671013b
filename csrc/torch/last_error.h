// LastError: the error of the latest failed operation of a group. Operations end on the peer loop,
// and other threads ask; any thread may call its functions.
#pragma once

#include <utility>

#include "csrc/base/mutex.h"
#include "csrc/base/status.h"

namespace pccl::torch_layer {

class LastError {
 public:
  // `status` may be ok: there is none then.
  void set(Status status) {
    const Lock lock(mutex_);
    status_ = std::move(status);
  }
  Status get() const {
    const Lock lock(mutex_);
    return status_;
  }

 private:
  mutable Mutex mutex_;
  Status status_;
};

}  // namespace pccl::torch_layer
