// SyncHandle: the user's handle of a sync_shared_state that goes on in the background. Any thread
// may call it. wait() returns or raises when the transfers are over, and writes what this peer
// lacked. If nobody keeps the handle, the transfers go on, and nothing is written.
// Failure: a tensor that was written meanwhile is an error, and nothing is written over it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "csrc/torch/borrowed_state.h"
#include "csrc/torch/peer_session.h"

namespace pccl::torch_layer {

using TellProgress = std::function<bool(const peer::SyncProgress&)>;  // see backend.h

class SyncHandle {
 public:
  SyncHandle(std::shared_ptr<PeerSession> session, std::shared_ptr<BorrowedState> state,
             std::shared_ptr<peer::BackgroundSync> sync);
  ~SyncHandle();
  SyncHandle(const SyncHandle&) = delete;
  SyncHandle& operator=(const SyncHandle&) = delete;

  // `seconds`: none for no limit but that of the group. Raises OperationTimeoutError after them,
  // and KeyboardInterrupt on Ctrl-C; both end nothing. `tell` is called at most every 100 ms, if
  // more has come; it may be empty. REQUIRES: the caller does not hold the GIL.
  peer::JointResult wait(std::optional<double> seconds, const TellProgress& tell);
  bool is_completed() const;
  bool is_concluded() const;  // wait() has given its outcome: nothing is lent any more
  bool receives() const;      // this peer lacks entries of what was agreed on
  uint64_t revision() const;  // of what was agreed on, and its hash
  uint64_t hash() const;

 private:
  std::shared_ptr<PeerSession> session_;
  std::shared_ptr<BorrowedState> state_;
  std::shared_ptr<peer::BackgroundSync> sync_;
  std::once_flag copied_back_;
  const uint64_t forks_;
};

}  // namespace pccl::torch_layer
