// BorrowedTensors: the memory of one operation's borrowed tensors, as spans that the ring can work
// on. The caller's thread lends the tensors, and the thread that ends the operation calls
// copy_back().
// Invariants:
// 1. The memory lives until the operation has ended, even if a tensor is made to point to other
//    memory meanwhile (tensor.data, set_()).
// 2. The span of a contiguous tensor is its own memory. Any other tensor is staged: its span is a
//    contiguous copy, which is copied back only when the operation has succeeded. So a failed
//    operation does not change a staged tensor.
// 3. Tensors on a device are staged, too, but in the background. Their spans are pinned memory,
//    which has the data when the staging has ended. The staging itself copies this memory back, not
//    copy_back().
// 4. A loop must never destroy this object: it releases memory, which may take the GIL.
// Failure: unfit tensors are refused with the error that the user sees: a device that pccl does not
// serve, two devices, a layout that is not dense, a storage that is too small, or memory that two
// elements share. While a graph is being captured on a device, all tensors on this device are
// refused.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/memory/staging.h"

namespace pccl::torch_layer {

using Bytes = std::span<std::byte>;
using Tensors = std::vector<at::Tensor>;

struct NamedTensor {
  std::string key;
  at::Tensor tensor;
};

// How the operation uses a tensor.
enum class Use { kRead, kWrite, kUpdate };

class BorrowedTensors {
 public:
  // `call`: the name of the collective, for error messages.
  explicit BorrowedTensors(const char* call) : call_(call) {}

  Bytes lend(const at::Tensor& tensor, Use use);
  // Lends all tensors, one after another, as one span. The span is a staged copy unless there is
  // only one tensor. REQUIRES: same_dtype().
  Bytes lend_flat(const Tensors& tensors, Use use);
  // Like lend_flat(tensors, Use::kUpdate), but the operation reads `values`, which have the sizes
  // and the dtype of the tensors.
  Bytes lend_flat(const Tensors& tensors, const Tensors& values);
  // For a coalesced all-gather or reduce-scatter: lends the tensors as `world` blocks. Each block
  // has a part of each of the tensors. REQUIRES: same_dtype(); kWrite or kRead.
  Bytes lend_interleaved(const Tensors& tensors, int64_t world, Use use);
  // Lends the concatenated inputs as this rank's part of an output. `block` is the memory of that
  // part in a span that was lent with kWrite. If the inputs are on a device, they are staged into
  // `block`, and `block` is returned. REQUIRES: admit() of each input.
  Bytes lend_own(Bytes block, const Tensors& inputs);
  // Raises an error for an unfit tensor, before anything is written.
  void admit(const Tensors& tensors, Use use);
  // The dtype of all tensors. ValueError if their dtypes differ or if there are none.
  at::ScalarType same_dtype(const Tensors& tensors) const;

  // The value of Work.result() and of the Future. Set before the operation is posted.
  Tensors results;

  // Whether spans are copies, which a failed operation may leave in any state.
  bool staged() const { return !copies_.empty() || on_device(); }
  // Whether a span that the operation writes is a tensor's own memory.
  bool writes_tensors() const { return writes_tensors_; }
  void copy_back();
  bool on_device() const { return device_.has_value(); }
  // REQUIRES: on_device(), and give_back_device() was not called.
  memory::Staging& staging() { return *staging_; }
  // Releases the pinned memory. REQUIRES: the staging is over.
  void give_back_device() { staging_.reset(); }

 private:
  struct Copy {
    at::Tensor to, from;
  };
  void check(const at::Tensor& tensor, Use use);
  void check_device(const at::Tensor& tensor);
  Bytes pin(size_t bytes);
  void stage(const at::Tensor& tensor, Bytes bytes, Use use);
  Bytes stage_interleaved(const Tensors& tensors, int64_t world, size_t block, Use use);

  const char* call_;
  std::optional<c10::Device> first_;   // device of the first tensor
  std::optional<c10::Device> device_;  // the device of the first tensor, unless it is the CPU
  Tensors kept_;
  std::vector<c10::Storage> memory_;
  std::unique_ptr<memory::Staging> staging_;
  std::vector<Copy> copies_;  // in the order of copy_back()
  bool writes_tensors_ = false;
};

// Whether the memory of the tensor has its elements in their order, and with their values (no lazy
// conjugation or negation).
bool is_plain(const at::Tensor& tensor);

// Whether the storage has room for all elements. It has not after resize_() has freed or shrunk it,
// and torch itself does not check this.
bool is_stored(const at::Tensor& tensor);
// Raises ValueError unless is_stored(). `what` names the tensor, as "parameter 'weight'".
void check_storage(std::string_view what, const at::Tensor& tensor);

// The dtype that travels for a torch dtype: kBytes for a dtype that is only moved (complex, float8,
// ...).
DType dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(DType dtype);  // the reverse; for kBytes: uint8

}  // namespace pccl::torch_layer
