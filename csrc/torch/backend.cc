#include "csrc/torch/backend.h"

#include <utility>

#include "csrc/net/descriptors.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {

PcclBackend::PcclBackend(std::shared_ptr<PeerSession> session, Milliseconds timeout)
    : Backend(static_cast<int>(session->peer().rank()),
              static_cast<int>(session->peer().world_size())),
      session_(std::move(session)),
      forks_(net::fork_count()),
      timeout_(timeout) {}

PcclBackend::~PcclBackend() { shutdown(); }

c10::intrusive_ptr<c10d::Backend::Options> PcclBackend::getBackendOptions() {
  return c10::make_intrusive<Options>("pccl", timeout_.load());
}

c10::intrusive_ptr<c10d::Backend> PcclBackend::split(const c10::intrusive_ptr<c10d::Store>&,
                                                     const std::vector<int>&,
                                                     const c10::intrusive_ptr<Options>&) {
  raise_not_implemented(
      "dist.split_group does not split a group in which pccl is one of several backends: use "
      "dist.new_group(ranks, backend=...)");
}

void PcclBackend::setTimeout(Milliseconds timeout) { timeout_ = checked_timeout(timeout); }

void PcclBackend::shutdown() {
  const ReleaseGil no_gil;
  session_->leave();
}

int PcclBackend::rank() const {
  return forks_ == net::fork_count() ? static_cast<int>(session_->peer().rank()) : rank_;
}
int PcclBackend::size() const {
  return forks_ == net::fork_count() ? static_cast<int>(session_->peer().world_size()) : size_;
}

}  // namespace pccl::torch_layer
