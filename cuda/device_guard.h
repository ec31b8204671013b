// DeviceGuard: makes a device the current one of this thread until the end of the block. If that
// fails, status() returns the error, and nothing has changed.
#pragma once

#include <cuda_runtime.h>

namespace pccl::cuda {

class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    status_ = cudaGetDevice(&before_);
    if (status_ != cudaSuccess || device == before_) return;
    status_ = cudaSetDevice(device);
    changed_ = status_ == cudaSuccess;
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  cudaError_t status() const { return status_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t status_;
};

}  // namespace pccl::cuda
