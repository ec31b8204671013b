#include "csrc/torch/borrowed_state.h"

#include <ATen/ATen.h>

#include <utility>

#include "csrc/torch/device.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {
namespace {

// The number of writes that torch has counted for this tensor; 0 if torch does not count them.
uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

constexpr size_t kFetchedAhead = 8;  // number of tensors

// Fetches the memory of this object into the cache, without waiting for it.
template <typename T>
void fetch(const T* object) {
  constexpr size_t kCacheLineBytes = 64;
  const char* const memory = reinterpret_cast<const char*>(object);
  for (size_t at = 0; at < sizeof(T); at += kCacheLineBytes) __builtin_prefetch(memory + at);
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// The torch dtype of an entry that is only moved. Nothing if this torch does not have that dtype:
// then the entry becomes a tensor of bytes.
std::optional<at::ScalarType> moved_type(const peer::AddedEntry& entry) {
  const auto type = static_cast<at::ScalarType>(entry.subtype);
  if (entry.dtype != DType::kBytes || entry.shape.empty()) return std::nullopt;
  if (entry.subtype >= static_cast<uint8_t>(at::ScalarType::NumOptions)) return std::nullopt;
  const bool fits = type != at::ScalarType::Undefined && !at::isQIntType(type) &&
                    dtype_of(type) == DType::kBytes &&
                    static_cast<int64_t>(c10::elementSize(type)) == entry.shape.back();
  return fits ? std::optional(type) : std::nullopt;
}

}  // namespace

BorrowedState::BorrowedState(std::vector<NamedTensor> entries, const MayAdd& may_add)
    : entries_(std::move(entries)) {
  std::vector<peer::StateSpan> spans;
  spans.reserve(entries_.size());
  for (const NamedTensor& entry : entries_) spans.push_back(lend(entry));
  auto made = peer::StateSpans::make(std::move(spans), may_add);
  if (!made.ok()) raise(made.status());
  spans_ = std::move(made.value());
}

// While one tensor is checked, the fields of the next tensors are fetched into the cache, because
// the fields of many thousand tensors are not in it.
bool BorrowedState::fits() const {
  if (!reusable_) return false;
  const int64_t* sizes = sizes_.data();
  for (size_t at = 0; at < entries_.size(); ++at) {
    if (at + 2 * kFetchedAhead < entries_.size())
      fetch(entries_[at + 2 * kFetchedAhead].tensor.unsafeGetTensorImpl());
    if (at + kFetchedAhead < entries_.size())
      fetch(storage_of(entries_[at + kFetchedAhead].tensor));
    const at::Tensor& tensor = entries_[at].tensor;
    const Lent& lent = lent_[at];
    // mutable_data_ptr() gives a lazy clone its own memory.
    const bool same = is_plain(tensor) && is_stored(tensor) && tensor.scalar_type() == lent.dtype &&
                      tensor.mutable_data_ptr() == lent.data &&
                      tensor.sizes() == at::IntArrayRef(sizes, lent.dimensions);
    if (!same) return false;
    sizes += lent.dimensions;
  }
  return true;
}

void BorrowedState::watch() {
  versions_.clear();
  for (const NamedTensor& entry : entries_) versions_.push_back(version_of(entry.tensor));
}

peer::StateSpan BorrowedState::lend(const NamedTensor& entry) {
  const at::Tensor& tensor = entry.tensor;
  check_storage(c10::str("the tensor '", entry.key, "' of the shared state"), tensor);
  const c10::Device device = tensor.device();
  BorrowedTensors& borrowed =
      borrowed_.try_emplace(device.str(), "sync_shared_state").first->second;
  borrowed.admit({tensor}, Use::kUpdate);
  const bool plain = is_plain(tensor);
  if (!plain && !device.is_cpu()) {
    raise_value_error("the tensor '" + entry.key + "' of the shared state is on " + device.str() +
                      " and not contiguous");
  }
  const DType dtype = dtype_of(tensor.scalar_type());
  peer::StateSpan span{entry.key, dtype, tensor.sizes().vec(), {}};
  // A dtype that pccl only moves counts as bytes: each byte is an element. The product of a shape
  // must be the number of elements. So the shape of such a tensor gets one more dimension, with the
  // number of bytes of an element.
  if (dtype == DType::kBytes) {
    span.shape.push_back(static_cast<int64_t>(tensor.element_size()));
    span.subtype = static_cast<uint8_t>(tensor.scalar_type());
  }
  reusable_ = reusable_ && plain && device.is_cpu();
  if (device.is_cpu()) {
    span.bytes = borrowed.lend(tensor, Use::kUpdate);
    lent_.push_back({span.bytes.data(), tensor.scalar_type(), static_cast<uint32_t>(tensor.dim())});
    sizes_.insert(sizes_.end(), tensor.sizes().begin(), tensor.sizes().end());
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

std::vector<NamedTensor> tensors_of(const std::vector<peer::AddedEntry>& added) {
  std::vector<NamedTensor> tensors;
  for (const peer::AddedEntry& entry : added) {
    const auto release = [memory = entry.memory](void*) {};
    at::ScalarType type = scalar_type_of(entry.dtype);
    std::vector<int64_t> shape = entry.shape;
    if (const auto moved = moved_type(entry)) {
      type = *moved;
      shape.pop_back();
    }
    tensors.push_back({entry.key, at::from_blob(entry.memory.get(), shape, release, type)});
  }
  return tensors;
}

}  // namespace pccl::torch_layer
