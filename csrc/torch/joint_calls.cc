// The joint calls of a backend, and what it tells about its run.

#include <map>
#include <string>
#include <utility>

#include "csrc/torch/backend.h"
#include "csrc/torch/device.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {
namespace {

// Borrows the tensors of a shared state. They may be on several devices, and the tensors of each
// device are checked like those of a collective.
class BorrowedState {
 public:
  peer::StateSpan lend(const PcclBackend::Entry& entry);

 private:
  std::map<std::string, BorrowedTensors> borrowed_;  // by device
};

peer::StateSpan BorrowedState::lend(const PcclBackend::Entry& entry) {
  const at::Tensor& tensor = entry.tensor;
  const c10::Device device = tensor.device();
  BorrowedTensors& borrowed =
      borrowed_.try_emplace(device.str(), "sync_shared_state").first->second;
  borrowed.admit({tensor}, Use::kUpdate);
  if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg() || tensor._is_zerotensor())
    raise_value_error("the tensor '" + entry.key + "' of the shared state is not contiguous");
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

}  // namespace

peer::JointResult PcclBackend::finish_joint(Result<peer::JointResult> result,
                                            bool was_interrupted) {
  if (was_interrupted) raise_interrupt();
  if (!result.ok()) raise(result.status());
  return std::move(result.value());
}

peer::JointResult PcclBackend::update_topology() {
  if (const Status status = session_->usable(); !status.ok()) raise(status);
  last_error_->set({});  // before the call, because the call may end operations with an error
  bool stop = false;
  auto result =
      session_->peer().update_topology(timeout_.load(), [&] { return stop = interrupted(); });
  refresh_rank_and_size();
  return finish_joint(std::move(result), stop);
}

void PcclBackend::raise_last_error() const {
  if (const Status status = last_error_->get(); !status.ok()) raise(status);
}

void PcclBackend::refresh_rank_and_size() {
  // In an older torch these two are const, and only the group reads them.
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  rank_ = rank();
  size_ = size();
#endif
}

bool PcclBackend::are_peers_pending() {
  if (const Status status = session_->usable(); !status.ok()) raise(status);
  bool stop = false;
  auto result =
      session_->peer().are_peers_pending(timeout_.load(), [&] { return stop = interrupted(); });
  return finish_joint(std::move(result), stop).pending;
}

peer::JointResult PcclBackend::sync_shared_state(uint64_t revision, protocol::SyncStrategy strategy,
                                                 const std::vector<Entry>& entries) {
  if (const Status status = session_->usable(); !status.ok()) raise(status);
  const LeaveCapturesAlone guard;
  BorrowedState borrowed;
  std::vector<peer::StateSpan> spans;
  for (const Entry& entry : entries) spans.push_back(borrowed.lend(entry));
  bool stop = false;
  auto result = session_->peer().sync_shared_state(revision, strategy, spans, timeout_.load(),
                                                   [&] { return stop = interrupted(); });
  return finish_joint(std::move(result), stop);
}

peer::Info PcclBackend::info() {
  if (const Status status = session_->usable(); !status.ok()) raise(status);
  return session_->peer().info();
}

}  // namespace pccl::torch_layer
