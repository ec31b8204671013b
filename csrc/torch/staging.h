// Lent: the memory of one operation's tensors, as spans that the ring can work on, kept alive until
// the operation has ended, whatever a tensor is made to point at meanwhile (tensor.data, set_()). A
// contiguous tensor lends its own memory. Any other is staged: a contiguous copy is lent in its
// place and copied back only when the operation has succeeded, so a failed one leaves no trace by
// itself. Lending belongs to the caller's thread, copy_back() to the one that ends the operation.
// Destroying it lets go of memory, which may take the GIL: never on a loop. Unfit tensors are
// refused with the error the user sees: another device, a layout that is not dense, memory in which
// two elements share a place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

#include "csrc/base/dtype.h"

namespace pccl::torch_layer {

using Bytes = std::span<std::byte>;
using Tensors = std::vector<at::Tensor>;

// What the operation does with a tensor.
enum class Use { kRead, kWrite, kUpdate };

class Lent {
 public:
  // `call` is the collective's name, for error messages.
  explicit Lent(const char* call) : call_(call) {}

  Bytes lend(const at::Tensor& tensor, Use use);
  // All tensors one after another, as one span: staged, unless there is only one. REQUIRES:
  // same_dtype().
  Bytes lend_flat(const Tensors& tensors, Use use);
  // Coalesced all-gather: `world` blocks, each with a part for each of the outputs. REQUIRES:
  // same_dtype().
  Bytes lend_interleaved(const Tensors& outputs, int64_t world);
  // The dtype of all of them; ValueError if they differ or there are none.
  at::ScalarType same_dtype(const Tensors& tensors) const;

  // What Work.result() and the Future give. Set before the operation is posted.
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
  std::vector<Copy> copies_;  // in this order
};

// What travels for a torch dtype: kBytes for those that are only moved (complex, float8, ...).
DType dtype_of(at::ScalarType type);

}  // namespace pccl::torch_layer
