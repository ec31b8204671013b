// FakeCuda: CUDA devices for tests on machines without one. Tensors have a CUDA device, and their
// memory is memory of the host. A memory::FakeDevice copies them, with delays, in another order,
// and with failures. While an object lives, it serves all devices of the process.
// Any thread may call it. It tests pccl's handling of device tensors, not CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "csrc/memory/fake_device.h"

namespace pccl::torch_layer {

class FakeCuda {
 public:
  explicit FakeCuda(memory::FakeDevice::Options options);
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  // A tensor on the device cuda:`index` with the memory, sizes and strides of this CPU tensor.
  static at::Tensor tensor(const at::Tensor& memory, int index);
  // The same elements as a CPU tensor.
  static at::Tensor on_host(const at::Tensor& tensor);
  void set(memory::FakeDevice::Options options);
  size_t pinned_bytes() const;
  size_t pinned_bytes_max() const;
  uint64_t copied_in() const;
  uint64_t bytes_out() const;

 private:
  class Locked;
  const std::shared_ptr<Locked> device_;
};

}  // namespace pccl::torch_layer
