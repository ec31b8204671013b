// LastError: the error of the latest failed operation of a group. The thread that ends an operation
// sets it, and other threads read it; any thread may call its functions.
#pragma once

#include <utility>

#include "csrc/base/mutex.h"
#include "csrc/base/status.h"

namespace pccl::torch_layer {

class LastError {
 public:
  // `status` is ok if there is no error.
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
