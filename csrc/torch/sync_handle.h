// SyncHandle: the user's handle of a sync_shared_state in the background. Any thread may call it.
// wait() returns or raises when the transfers are over, and writes the data that this peer lacked.
// If the handle is dropped, the transfers continue, and nothing is written.
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

  // `seconds`: none for the limit of the group only. Raises OperationTimeoutError after them, and
  // KeyboardInterrupt on Ctrl-C; both end nothing. `tell` is called at most every 100 ms, if more
  // data has arrived; it may be empty. REQUIRES: the caller does not hold the GIL.
  peer::JointResult wait(std::optional<double> seconds, const TellProgress& tell);
  bool is_completed() const;
  bool is_concluded() const;  // wait() has returned its outcome: nothing is lent any more
  bool receives() const;      // this peer lacks entries of the agreed state
  uint64_t revision() const;  // of the agreed state, and its hash
  uint64_t hash() const;

 private:
  std::shared_ptr<PeerSession> session_;
  std::shared_ptr<BorrowedState> state_;
  std::shared_ptr<peer::BackgroundSync> sync_;
  std::once_flag copied_back_;
  const uint64_t forks_;
};

}  // namespace pccl::torch_layer
