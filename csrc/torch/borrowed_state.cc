#include "csrc/torch/borrowed_state.h"

#include <utility>

#include "csrc/torch/device.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {
namespace {

// 0 for a tensor whose writes torch does not count.
uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

}  // namespace

BorrowedState::BorrowedState(std::vector<NamedTensor> entries) : entries_(std::move(entries)) {
  for (const NamedTensor& entry : entries_) {
    spans_.push_back(lend(entry));
    versions_.push_back(version_of(entry.tensor));
  }
}

peer::StateSpan BorrowedState::lend(const NamedTensor& entry) {
  const at::Tensor& tensor = entry.tensor;
  const c10::Device device = tensor.device();
  BorrowedTensors& borrowed =
      borrowed_.try_emplace(device.str(), "sync_shared_state").first->second;
  borrowed.admit({tensor}, Use::kUpdate);
  const bool plain =
      tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
  if (!plain && !device.is_cpu()) {
    raise_value_error("the tensor '" + entry.key + "' of the shared state is on " + device.str() +
                      " and not contiguous");
  }
  const DType dtype = dtype_of(tensor.scalar_type());
  peer::StateSpan span{entry.key, dtype, tensor.sizes().vec(), {}};
  // The product of a shape must be the number of elements. For a dtype that is only moved, these
  // are bytes, so its shape gets one more dimension.
  if (dtype == DType::kBytes) span.shape.push_back(static_cast<int64_t>(tensor.element_size()));
  if (device.is_cpu()) {
    span.bytes = borrowed.lend(tensor, Use::kUpdate);
  } else {
    span.device = &device_of(device);
    span.on_device = std::make_shared<TensorBytes>(tensor);
  }
  return span;
}

void BorrowedState::copy_back() {
  for (auto& [device, borrowed] : borrowed_) borrowed.copy_back();
}

Status BorrowedState::unwritten() const {
  for (size_t at = 0; at < entries_.size(); ++at) {
    if (version_of(entries_[at].tensor) == versions_[at]) continue;
    return {Code::kSharedState,
            "the tensor '" + entries_[at].key +
                "' was written while sync_shared_state(async_op=True) had it: write the tensors of "
                "a shared state after wait() has returned, and sync them again now",
            {}};
  }
  return {};
}

}  // namespace pccl::torch_layer
