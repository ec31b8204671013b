#include "csrc/torch/borrowed_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "csrc/torch/errors.h"
#include "csrc/torch/overlap.h"

namespace pccl::torch_layer {
namespace {

// Autograd must not see staging, and staging may also write to tensors made in inference mode.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

Bytes bytes_of(const at::Tensor& tensor, Use use) {
  // A kRead tensor is never written through this pointer. Asking for a mutable pointer would copy
  // lazy clones.
  void* data =
      use == Use::kRead ? const_cast<void*>(tensor.const_data_ptr()) : tensor.mutable_data_ptr();
  return {static_cast<std::byte*>(data), tensor.nbytes()};
}

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

}  // namespace

void BorrowedTensors::check(const at::Tensor& tensor, Use use) const {
  if (!tensor.device().is_cpu()) {
    raise_not_implemented(c10::str("pccl moves CPU tensors in this version, and ", call_,
                                   " was given one on ", tensor.device(),
                                   ": copy it with .cpu() first, and back afterwards"));
  }
  if (tensor.layout() != at::kStrided) {
    raise_not_implemented(c10::str("pccl moves dense tensors in this version, and ", call_,
                                   " was given one of layout ", tensor.layout(),
                                   ": use .to_dense()"));
  }
  if (tensor.is_quantized()) {
    raise_value_error(c10::str(call_, " was given a tensor of dtype ", tensor.scalar_type(),
                               ", whose scale would be lost: send its .int_repr()"));
  }
  if (use != Use::kRead && shares_with_itself(tensor)) {
    raise_value_error(
        c10::str(call_, " writes to its tensor, and elements of this one share memory (sizes ",
                 tensor.sizes(), ", strides ", tensor.strides(), "): use .clone()"));
  }
}

Bytes BorrowedTensors::lend(const at::Tensor& tensor, Use use) {
  check(tensor, use);
  const BelowAutograd guard;
  if (is_plain(tensor)) {
    memory_.push_back(tensor.storage());
    return bytes_of(tensor, use);
  }
  at::Tensor stage = contiguous_like(tensor);
  if (use != Use::kWrite) stage.copy_(tensor);
  if (use != Use::kRead) copies_.push_back({tensor.detach(), stage});
  kept_.push_back(stage);
  return bytes_of(stage, Use::kUpdate);
}

Bytes BorrowedTensors::lend_flat(const Tensors& tensors, Use use) {
  if (tensors.size() == 1) return lend(tensors[0], use);
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    check(tensor, use);
    count += tensor.numel();
  }
  const BelowAutograd guard;
  const at::Tensor stage = at::empty({count}, at::TensorOptions().dtype(same_dtype(tensors)));
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor part = stage.narrow(0, at, tensor.numel()).view(tensor.sizes());
    at += tensor.numel();
    if (use != Use::kWrite) part.copy_(tensor);
    if (use != Use::kRead) copies_.push_back({tensor.detach(), part});
  }
  kept_.push_back(stage);
  return bytes_of(stage, Use::kUpdate);
}

Bytes BorrowedTensors::lend_interleaved(const Tensors& outputs, int64_t world) {
  if (outputs.size() == 1) return lend(outputs[0], Use::kWrite);
  int64_t count = 0;
  for (const at::Tensor& output : outputs) {
    check(output, Use::kWrite);
    count += output.numel() / world;
  }
  const BelowAutograd guard;
  const at::Tensor stage =
      at::empty({world, count}, at::TensorOptions().dtype(same_dtype(outputs)));
  int64_t at = 0;
  for (const at::Tensor& output : outputs) {
    const int64_t mine = output.numel() / world;
    const at::Tensor whole = is_plain(output) ? output : contiguous_like(output);
    copies_.push_back({whole.view({world, mine}), stage.narrow(1, at, mine)});
    if (!whole.is_same(output)) copies_.push_back({output.detach(), whole});
    at += mine;
  }
  kept_.push_back(stage);
  return bytes_of(stage, Use::kUpdate);
}

at::ScalarType BorrowedTensors::same_dtype(const Tensors& tensors) const {
  if (tensors.empty()) raise_value_error(c10::str(call_, " was given an empty list of tensors"));
  for (const at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() == tensors[0].scalar_type()) continue;
    raise_value_error(c10::str(
        call_, " moves its tensors as one and needs one dtype, but was given ",
        tensors[0].scalar_type(), " and ", tensor.scalar_type(), ": make one call per dtype"));
  }
  return tensors[0].scalar_type();
}

void BorrowedTensors::copy_back() {
  const BelowAutograd guard;
  for (Copy& copy : copies_) copy.to.copy_(copy.from);
}

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kByte: return DType::kUint8;
    case at::kChar: return DType::kInt8;
    case at::kShort: return DType::kInt16;
    case at::kInt: return DType::kInt32;
    case at::kLong: return DType::kInt64;
    case at::kUInt16: return DType::kUint16;
    case at::kUInt32: return DType::kUint32;
    case at::kUInt64: return DType::kUint64;
    case at::kHalf: return DType::kFloat16;
    case at::kBFloat16: return DType::kBfloat16;
    case at::kFloat: return DType::kFloat32;
    case at::kDouble: return DType::kFloat64;
    case at::kBool: return DType::kBool;
    default: return DType::kBytes;
  }
}

}  // namespace pccl::torch_layer
