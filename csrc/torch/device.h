// device: the devices of tensors, behind the interface of csrc/memory/device.h. It uses only
// torch's device-neutral interface, and a few functions of the CUDA runtime that torch has loaded,
// which it finds by name. So one build serves a torch with CUDA and one without. Any thread may
// call it. Work runs on three streams of our own for each device: one for copies to the host, one
// for copies to the device, and one for work that waits for no mark. The streams of torch's pool
// are shared with others: a copy on one of them could wait for a kernel that waits for another
// rank, while that rank waits for this copy. Hashes come from the kernels library; a device without
// it computes none.
// Failure: a Status with the first line of torch's message. device_of() raises RuntimeError if the
// streams cannot be made.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "csrc/memory/device.h"

namespace pccl::torch_layer {

// A tensor as memory of its device. In host memory the tensor has `parts` parts of equal size, and
// a part begins every `pitch` bytes.
struct TensorMemory : memory::DeviceMemory {
  explicit TensorMemory(const at::Tensor& whole, int64_t part_count = 1, size_t part_pitch = 0);
  const at::Tensor tensor;     // keeps the memory if the caller's tensor gets different memory
  const c10::Storage storage;  // keeps the memory, too
  const int64_t parts;
  const size_t pitch;
};

// A contiguous tensor as the bytes of its memory.
struct TensorBytes : memory::DeviceBytes {
  // REQUIRES: contiguous, and neither conjugated nor negated lazily.
  explicit TensorBytes(const at::Tensor& whole);
  size_t size() const override { return bytes.nbytes(); }
  std::shared_ptr<memory::DeviceMemory> part(size_t offset, size_t count) const override;
  const at::Tensor bytes;  // uint8, of one dimension; it keeps the memory of `whole` alive
};

// Copies between a tensor and host memory. `background`: the current stream of the tensor's device
// does the copy later.
void copy_to_host(const TensorMemory& from, std::span<std::byte> to, bool background);
void copy_from_host(std::span<std::byte> from, const TensorMemory& to, bool background);

// The device that serves tensors on `device`. It lives as long as the process.
memory::Device& device_of(c10::Device device);

// From now on `device` serves all devices; null ends that. For tests. REQUIRES: no operation is in
// flight.
void serve_all_by(std::shared_ptr<memory::Device> device);

// While an object lives, calls of its thread do not disturb a graph that another thread captures.
class LeaveCapturesAlone {
 public:
  LeaveCapturesAlone();
  ~LeaveCapturesAlone();
  LeaveCapturesAlone(const LeaveCapturesAlone&) = delete;
  LeaveCapturesAlone& operator=(const LeaveCapturesAlone&) = delete;

 private:
  int mode_;  // the mode of the thread before
};

}  // namespace pccl::torch_layer
