// BorrowedTensors: the memory of one operation's borrowed tensors, as spans that the ring can work
// on. The caller's thread lends the tensors, and the thread that ends the operation calls
// copy_back().
// Invariants:
// 1. The memory lives until the operation has ended, even if a tensor is made to point to other
//    memory meanwhile (tensor.data, set_()).
// 2. The span of a contiguous tensor is its own memory. Any other tensor is staged: its span is
//    that of a contiguous copy, which is copied back only when the operation has succeeded. So a
//    failed operation does not change a staged tensor.
// 3. A loop must never destroy this object: it releases memory, which may take the GIL.
// Failure: unfit tensors are refused with the error that the user sees: another device, a layout
// that is not dense, or memory that two elements share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

#include "csrc/base/dtype.h"

namespace pccl::torch_layer {

using Bytes = std::span<std::byte>;
using Tensors = std::vector<at::Tensor>;

// How the operation uses a tensor.
enum class Use { kRead, kWrite, kUpdate };

class BorrowedTensors {
 public:
  // `call`: the name of the collective, for error messages.
  explicit BorrowedTensors(const char* call) : call_(call) {}

  Bytes lend(const at::Tensor& tensor, Use use);
  // All tensors one after another, as one span: staged, unless there is only one. REQUIRES:
  // same_dtype().
  Bytes lend_flat(const Tensors& tensors, Use use);
  // For a coalesced all-gather: `world` blocks, each with a part for each of the outputs. REQUIRES:
  // same_dtype().
  Bytes lend_interleaved(const Tensors& outputs, int64_t world);
  // The dtype of all tensors. ValueError if their dtypes differ or if there are none.
  at::ScalarType same_dtype(const Tensors& tensors) const;

  // The value of Work.result() and of the Future. Set before the operation is posted.
  Tensors results;

  bool staged() const { return !copies_.empty(); }
  void copy_back();

 private:
  struct Copy {
    at::Tensor to, from;
  };
  void check(const at::Tensor& tensor, Use use) const;

  const char* call_;
  Tensors kept_;
  std::vector<c10::Storage> memory_;
  std::vector<Copy> copies_;  // in the order in which copy_back() makes them
};

// The dtype that travels for a torch dtype: kBytes for a dtype that is only moved (complex, float8,
// ...).
DType dtype_of(at::ScalarType type);

}  // namespace pccl::torch_layer
