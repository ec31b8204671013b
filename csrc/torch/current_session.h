// CurrentSession: the session of a group, which a reconfigure replaces. Any thread may call it.
#pragma once

#include <memory>
#include <utility>

#include "csrc/base/mutex.h"

namespace pccl::torch_layer {

class PeerSession;

class CurrentSession {
 public:
  explicit CurrentSession(std::shared_ptr<PeerSession> session) : session_(std::move(session)) {}
  // Null: the group has no members.
  std::shared_ptr<PeerSession> get() const {
    const Lock lock(mutex_);
    return session_;
  }
  // Returns the earlier one.
  std::shared_ptr<PeerSession> exchange(std::shared_ptr<PeerSession> next) {
    const Lock lock(mutex_);
    return std::exchange(session_, std::move(next));
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<PeerSession> session_ PCCL_GUARDED_BY(mutex_);
};

}  // namespace pccl::torch_layer
