#include "csrc/torch/backend.h"

#include <algorithm>
#include <utility>

#include "csrc/net/descriptors.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/reconfiguration.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {
namespace {

#ifdef C10D_BACKEND_HAS_RECONFIGURE

constexpr const char* kNotReconfigurable =
    "this group was made without enable_reconfigure=True, so its membership changes by "
    "pccl_backend.update_topology()";

// A reconfigure is over when it returns.
class FinishedWork : public c10d::Work {
 public:
  explicit FinishedWork(int rank) : Work(rank, c10d::OpType::UNKNOWN) { finish(); }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    future->markCompleted(c10::List<at::Tensor>());
    return future;
  }
};

#endif

}  // namespace

PcclBackend::PcclBackend(std::shared_ptr<PeerSession> session, Milliseconds timeout)
    : Backend(static_cast<int>(session->peer().rank()),
              static_cast<int>(session->peer().world_size())),
      session_(std::move(session)),
      forks_(net::fork_count()),
      timeout_(timeout) {}

PcclBackend::PcclBackend(std::unique_ptr<Reconfiguration> reconfiguration, int rank, int size,
                         Milliseconds timeout)
    : Backend(rank, size),
      session_(nullptr),
      reconfiguration_(std::move(reconfiguration)),
      forks_(net::fork_count()),
      timeout_(timeout) {
  hooks_->reconfigurable = true;
}

PcclBackend::~PcclBackend() {
  end_all();
  hooks_->clear();  // an operation may outlive this object on the peer loop, which destroys no hook
}

std::shared_ptr<PeerSession> PcclBackend::usable_session() const {
  auto session = session_.get();
  if (session == nullptr) {
    raise({Code::kInvalidState,
           "the group has no members: call reconfigure first (enable_reconfigure, abort)",
           {}});
  }
  if (const Status status = session->usable(); !status.ok()) raise(status);
  return session;
}

c10::intrusive_ptr<c10d::Backend::Options> PcclBackend::getBackendOptions() {
  return c10::make_intrusive<Options>("pccl", timeout_.load());
}

c10::intrusive_ptr<c10d::Backend> PcclBackend::split(const c10::intrusive_ptr<c10d::Store>&,
                                                     const std::vector<int>&,
                                                     const c10::intrusive_ptr<Options>&) {
  raise_not_implemented(
      "dist.split_group does not split this group, in which torch's own class holds pccl: a group "
      "of several backends, or one that was shrunk: use dist.new_group(ranks, backend=...)");
}

c10::intrusive_ptr<c10d::Backend> PcclBackend::shrink(const std::vector<int64_t>&, int,
                                                      const c10::intrusive_ptr<Options>&) {
  raise_not_implemented(
      "the backend pccl shrinks a group through Python only: call dist.shrink_group");
}

void PcclBackend::join_composite(bool serves_cuda) {
  in_composite_ = true;
  serves_cuda_ = serves_cuda;
}

void PcclBackend::setTimeout(Milliseconds timeout) { timeout_ = checked_timeout(timeout); }

void PcclBackend::replace_session(std::shared_ptr<PeerSession> next) {
  const ReleaseGil no_gil;
  if (next != nullptr) next->forget_errors();
  const auto before = session_.exchange(next);
  posted_ = 0;
  if (before != nullptr && before != next) before->leave();
  refresh_rank_and_size();
}

void PcclBackend::shutdown() { end_all(); }

void PcclBackend::abort() {
  if (forks_ != net::fork_count()) return;
  {
    const ReleaseGil no_gil;
    hooks_->run_abort();
  }
  end_all();
}

void PcclBackend::end_all() {
  if (forks_ != net::fork_count()) return;
  if (reconfiguration_ != nullptr) {
    reconfiguration_->interrupt();
    return replace_session(nullptr);
  }
  const ReleaseGil no_gil;
  session_.get()->leave();
}

#ifdef C10D_BACKEND_HAS_HOOKS
void PcclBackend::registerAbortHook(int64_t id, c10d::AbortHook hook) {
  hooks_->abort.add(id, std::move(hook));
}

void PcclBackend::unregisterAbortHook(int64_t id) { hooks_->abort.remove(id); }
#endif

#ifdef PCCL_TORCH_HAS_COMPLETION_HOOKS
void PcclBackend::registerCompletionHook(int64_t id, c10d::CompletionHook hook) {
  hooks_->completion.add(id,
                         [hook = std::move(hook)](uint64_t key, std::optional<float> milliseconds) {
                           hook({.completionKey = key, .duration_ms = milliseconds});
                         });
}

void PcclBackend::unregisterCompletionHook(int64_t id) { hooks_->completion.remove(id); }
#endif

c10d::ErrorType PcclBackend::getError() {
  const Status status = last_error();
  if (status.ok()) return c10d::ErrorType::SUCCESS;
  return status.code == Code::kOperationTimeout ? c10d::ErrorType::TIMEOUT
                                                : c10d::ErrorType::COMM_ERROR;
}

Status PcclBackend::last_error() const {
  if (forks_ != net::fork_count()) return {};
  const auto session = session_.get();
  return session == nullptr ? Status() : session->last_error()->get();
}

int PcclBackend::rank() const {
  if (forks_ != net::fork_count()) return rank_;
  const auto session = session_.get();
  if (session == nullptr) return rank_;
  return static_cast<int>(session->peer().rank());
}

int PcclBackend::size() const {
  if (forks_ != net::fork_count()) return size_;
  const auto session = session_.get();
  if (session == nullptr) return size_;
  return static_cast<int>(session->peer().world_size());
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE

c10d::ReconfigureHandle PcclBackend::get_reconfigure_handle() const {
  if (reconfiguration_ == nullptr) raise_not_implemented(kNotReconfigurable);
  return reconfiguration_->handle();
}

// The present members stay until the new ones have met. So after a failure the group is as before.
PcclBackend::WorkPtr PcclBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  if (reconfiguration_ == nullptr) raise_not_implemented(kNotReconfigurable);
  std::vector<std::string> handles;
  if (const auto* list = std::get_if<std::vector<std::string>>(&options.handles)) {
    handles = *list;
  } else {
    const auto& set = std::get<std::unordered_set<std::string>>(options.handles);
    handles.assign(set.begin(), set.end());
    std::sort(handles.begin(), handles.end());
  }
  const Milliseconds timeout = options.timeout.value_or(timeout_.load());
  reconfiguration_->meet(options.uuid, handles, timeout, session_.get(),
                         [this](auto session) { replace_session(std::move(session)); });
  return c10::make_intrusive<FinishedWork>(rank());
}

#endif

}  // namespace pccl::torch_layer
