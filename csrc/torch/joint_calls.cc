// The joint calls of a backend, and what it tells about its run.

#include <utility>

#include "csrc/torch/backend.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {

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
  BorrowedTensors borrowed("sync_shared_state");
  std::vector<peer::StateSpan> spans;
  for (const Entry& entry : entries) {
    if (!entry.tensor.device().is_cpu()) {
      raise_value_error(c10::str("'", entry.key, "' is on ", entry.tensor.device(),
                                 ": this version shares CPU tensors only"));
    }
    const Bytes bytes = borrowed.lend(entry.tensor, Use::kUpdate);
    if (borrowed.staged())
      raise_value_error("the tensor '" + entry.key + "' of the shared state is not contiguous");
    const DType dtype = dtype_of(entry.tensor.scalar_type());
    spans.push_back({entry.key, dtype, entry.tensor.sizes().vec(), bytes});
    // The product of a shape must be the number of elements. For a dtype that is only moved, these
    // are bytes, so its shape gets one more dimension.
    if (dtype == DType::kBytes)
      spans.back().shape.push_back(static_cast<int64_t>(entry.tensor.element_size()));
  }
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
