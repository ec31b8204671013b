#include "csrc/torch/borrowed_tensors.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>

#include "csrc/torch/device.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/overlap.h"

namespace pccl::torch_layer {
namespace {

// Autograd must not see staging, and staging may also write to tensors made in inference mode.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

Bytes bytes_of(const at::Tensor& tensor, Use use) {
  // A kRead tensor is never written through this pointer. Asking for a mutable pointer would copy
  // lazy clones.
  void* data =
      use == Use::kRead ? const_cast<void*>(tensor.const_data_ptr()) : tensor.mutable_data_ptr();
  return {static_cast<std::byte*>(data), tensor.nbytes()};
}

size_t bytes_needed(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                          static_cast<size_t>(tensor.storage_offset()));
}

std::string name_of(const char* call, Use use) {
  const char* const role = use == Use::kRead    ? "the input of "
                           : use == Use::kWrite ? "the output of "
                                                : "the tensor of ";
  return c10::str(role, call);
}

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

}  // namespace

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

// An element of a quantized tensor may be smaller than a byte, so bytes_needed() is too high. pccl
// refuses these tensors anyway.
bool is_stored(const at::Tensor& tensor) {
  return bytes_needed(tensor) <= tensor.storage().nbytes() || tensor.is_quantized();
}

void check_storage(std::string_view what, const at::Tensor& tensor) {
  if (is_stored(tensor)) return;
  raise_value_error(c10::str(
      what, " (", tensor.scalar_type(), ", sizes ", tensor.sizes(), ") needs a storage of ",
      bytes_needed(tensor), " bytes, and its storage has ", tensor.storage().nbytes(),
      ": it was freed or shrunk, as FSDP does after a step. Resize it and fill it again before, or "
      "give another tensor"));
}

void BorrowedTensors::check(const at::Tensor& tensor, Use use) {
  if (first_ != tensor.device()) check_device(tensor);
  if (tensor.layout() != at::kStrided) {
    raise_not_implemented(
        c10::str("pccl moves dense tensors, and all_reduce adds sparse ones of "
                 "layout COO; ",
                 call_, " was given one of layout ", tensor.layout(), ": use .to_dense()"));
  }
  if (tensor.is_quantized()) {
    raise_value_error(c10::str(call_, " was given a tensor of dtype ", tensor.scalar_type(),
                               ", whose scale would be lost: send its .int_repr()"));
  }
  if (!is_stored(tensor)) check_storage(name_of(call_, use), tensor);
  if (use != Use::kRead && shares_with_itself(tensor)) {
    raise_value_error(
        c10::str(call_, " writes to its tensor, and elements of this one share memory (sizes ",
                 tensor.sizes(), ", strides ", tensor.strides(), "): use .clone()"));
  }
}

// Called for the first tensor, and for one on a different device than the first.
void BorrowedTensors::check_device(const at::Tensor& tensor) {
  const c10::Device device = tensor.device();
  if (!device.is_cpu() && !device.is_cuda()) {
    raise_not_implemented(c10::str("pccl moves tensors of the CPU and of CUDA devices, and ", call_,
                                   " was given one on ", device,
                                   ": copy it with .cpu() first, and back afterwards"));
  }
  if (first_) {
    raise_value_error(c10::str(call_, " was given tensors on ", *first_, " and on ", device,
                               ": all tensors of one call must be on one device"));
  }
  first_ = device;
  if (device.is_cpu()) return;
  memory::Device& serving = device_of(device);
  if (serving.capturing()) {
    raise({Code::kInvalidState,
           c10::str(call_,
                    " cannot be captured in a CUDA graph: it needs the host. Call it outside "
                    "of the capture"),
           {}});
  }
  device_ = device;
  staging_ = std::make_unique<memory::Staging>(serving);
}

Bytes BorrowedTensors::pin(size_t bytes) {
  Result<std::span<std::byte>> pinned = staging_->pin(bytes);
  if (!pinned.ok())
    raise({pinned.status().code, c10::str(call_, ": ", pinned.status().message), {}});
  return pinned.value();
}

void BorrowedTensors::stage(const at::Tensor& tensor, Bytes bytes, Use use) {
  if (bytes.empty()) return;
  if (use != Use::kRead) tensor.mutable_data_ptr();  // gives a lazy clone its own memory
  const auto device = std::make_shared<TensorMemory>(tensor);
  if (use != Use::kWrite) staging_->add_out({device, bytes});
  if (use != Use::kRead) staging_->add_in({device, bytes});
}

void BorrowedTensors::admit(const Tensors& tensors, Use use) {
  for (const at::Tensor& tensor : tensors) check(tensor, use);
}

Bytes BorrowedTensors::lend_own(Bytes block, const Tensors& inputs) {
  if (!on_device()) return lend_flat(inputs, Use::kRead);
  const BelowAutograd guard;
  Bytes rest = block;
  for (const at::Tensor& input : inputs) {
    stage(input, rest.first(input.nbytes()), Use::kRead);
    rest = rest.subspan(input.nbytes());
  }
  return block;
}

Bytes BorrowedTensors::lend(const at::Tensor& tensor, Use use) {
  check(tensor, use);
  const BelowAutograd guard;
  if (on_device()) {
    const Bytes bytes = pin(tensor.nbytes());
    stage(tensor, bytes, use);
    return bytes;
  }
  if (is_plain(tensor)) {
    memory_.push_back(tensor.storage());
    writes_tensors_ = writes_tensors_ || use != Use::kRead;
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
  const at::ScalarType scalar = same_dtype(tensors);
  if (on_device()) {
    const Bytes whole = pin(static_cast<size_t>(count) * c10::elementSize(scalar));
    Bytes rest = whole;
    for (const at::Tensor& tensor : tensors) {
      stage(tensor, rest.first(tensor.nbytes()), use);
      rest = rest.subspan(tensor.nbytes());
    }
    return whole;
  }
  const at::Tensor stage = at::empty({count}, at::TensorOptions().dtype(scalar));
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

Bytes BorrowedTensors::lend_flat(const Tensors& tensors, const Tensors& values) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    check(tensor, Use::kUpdate);
    count += tensor.numel();
  }
  const BelowAutograd guard;
  const at::ScalarType scalar = same_dtype(tensors);
  if (on_device()) {
    const Bytes whole = pin(static_cast<size_t>(count) * c10::elementSize(scalar));
    Bytes rest = whole;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Bytes bytes = rest.first(tensors[i].nbytes());
      stage(values[i], bytes, Use::kRead);
      stage(tensors[i], bytes, Use::kWrite);
      rest = rest.subspan(bytes.size());
    }
    return whole;
  }
  const at::Tensor stage = at::empty({count}, at::TensorOptions().dtype(scalar));
  int64_t at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor part = stage.narrow(0, at, tensors[i].numel()).view(tensors[i].sizes());
    at += tensors[i].numel();
    part.copy_(values[i]);
    copies_.push_back({tensors[i].detach(), part});
  }
  kept_.push_back(stage);
  return bytes_of(stage, Use::kUpdate);
}

Bytes BorrowedTensors::lend_interleaved(const Tensors& tensors, int64_t world, Use use) {
  if (tensors.size() == 1) return lend(tensors[0], use);
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    check(tensor, use);
    count += tensor.numel() / world;
  }
  const BelowAutograd guard;
  const at::ScalarType scalar = same_dtype(tensors);
  if (on_device()) {
    return stage_interleaved(tensors, world, static_cast<size_t>(count) * c10::elementSize(scalar),
                             use);
  }
  const at::Tensor stage = at::empty({world, count}, at::TensorOptions().dtype(scalar));
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    const int64_t mine = tensor.numel() / world;
    const at::Tensor part = stage.narrow(1, at, mine);
    at += mine;
    if (use == Use::kRead) {
      part.copy_(tensor.reshape({world, mine}));
      continue;
    }
    const at::Tensor whole = is_plain(tensor) ? tensor : contiguous_like(tensor);
    copies_.push_back({whole.view({world, mine}), part});
    if (!whole.is_same(tensor)) copies_.push_back({tensor.detach(), whole});
  }
  kept_.push_back(stage);
  return bytes_of(stage, Use::kUpdate);
}

// In host memory, each of the `world` blocks has one part of each tensor.
Bytes BorrowedTensors::stage_interleaved(const Tensors& tensors, int64_t world, size_t block,
                                         Use use) {
  const Bytes whole = pin(static_cast<size_t>(world) * block);
  size_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    const size_t mine = tensor.nbytes() / static_cast<size_t>(world);
    if (mine == 0) continue;
    if (use == Use::kRead) {
      const at::Tensor rows = tensor.reshape({world, tensor.numel() / world});
      for (int64_t row = 0; row < world; ++row)
        stage(rows.select(0, row), whole.subspan(static_cast<size_t>(row) * block + at, mine), use);
    } else {
      tensor.mutable_data_ptr();  // gives a lazy clone its own memory
      staging_->add_in({std::make_shared<TensorMemory>(tensor, world, block),
                        whole.subspan(at, (static_cast<size_t>(world) - 1) * block + mine)});
    }
    at += mine;
  }
  return whole;
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

at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::kUint8: return at::kByte;
    case DType::kInt8: return at::kChar;
    case DType::kInt16: return at::kShort;
    case DType::kInt32: return at::kInt;
    case DType::kInt64: return at::kLong;
    case DType::kUint16: return at::kUInt16;
    case DType::kUint32: return at::kUInt32;
    case DType::kUint64: return at::kUInt64;
    case DType::kFloat16: return at::kHalf;
    case DType::kBfloat16: return at::kBFloat16;
    case DType::kFloat32: return at::kFloat;
    case DType::kFloat64: return at::kDouble;
    case DType::kBool: return at::kBool;
    case DType::kBytes: break;
  }
  return at::kByte;
}

}  // namespace pccl::torch_layer
