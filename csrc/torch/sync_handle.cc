#include "csrc/torch/sync_handle.h"

#include <utility>

#include "csrc/net/descriptors.h"
#include "csrc/peer/shell/state/background_sync.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/timeout.h"

namespace pccl::torch_layer {

SyncHandle::SyncHandle(std::shared_ptr<PeerSession> session, std::shared_ptr<BorrowedState> state,
                       std::shared_ptr<peer::BackgroundSync> sync)
    : session_(std::move(session)),
      state_(std::move(state)),
      sync_(std::move(sync)),
      forks_(net::fork_count()) {}

SyncHandle::~SyncHandle() {
  if (forks_ != net::fork_count()) return;
  const ReleaseGil no_gil;
  sync_->abandon();
  sync_.reset();
  session_.reset();
}

peer::JointResult SyncHandle::wait(std::optional<double> seconds, const TellProgress& tell) {
  const auto limit =
      seconds ? Duration(checked_timeout(std::chrono::duration<double>(*seconds))) : kForever;
  const auto raised_by_tell = [&] {
    const auto progress = tell ? sync_->take_progress() : std::nullopt;
    return progress && !tell(*progress);
  };
  const Instant until = monotonic_now() + limit;
  bool stop = false;
  const auto stopped = [&] { return stop = raised_by_tell() || interrupted(); };
  // The last progress is reported before the end, so that an exception leaves the end to the next
  // wait. A forked child never sees the end, and gets its error below.
  if (forks_ == net::fork_count() && sync_->wait(until, stopped)) stop = raised_by_tell();
  if (stop) raise_interrupt();
  const auto outcome =
      session_->peer().wait_for(*sync_, until, stopped, [this] { return state_->unwritten(); });
  if (!outcome) {
    raise({Code::kOperationTimeout,
           "wait() of sync_shared_state ended after its timeout of " + text(limit) +
               ", but the transfers go on and the tensors stay lent: wait again, or give the group "
               "a timeout, which ends the call on all ranks",
           {}});
  }
  if (!outcome->ok()) raise(outcome->status());
  const peer::JointResult& result = outcome->value();
  if (result.bytes_received > 0) std::call_once(copied_back_, [this] { state_->copy_back(); });
  return result;
}

bool SyncHandle::is_completed() const { return sync_->ended(); }
bool SyncHandle::is_concluded() const { return sync_->concluded(); }
bool SyncHandle::receives() const { return sync_->receives(); }
uint64_t SyncHandle::revision() const { return sync_->elected().first; }
uint64_t SyncHandle::hash() const { return sync_->elected().second; }

}  // namespace pccl::torch_layer
