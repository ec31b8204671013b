// HostExit: whether the process that hosts a run may exit. Rank 0 of a fixed world can end long
// before the others, and they need its master. MasterCore owns it and reports, after each step, who
// is still here. It is pure.
// The process may exit when all other peers have left or are lost. It may also exit when none of
// them has been in an operation or a joint call for `patience`: they need no master now, and may
// never need it again.
// Invariant: it has a deadline exactly while it waits.
#pragma once

#include <optional>

#include "csrc/base/clock.h"

namespace pccl::master {

class HostExit {
 public:
  // The process wants to exit. A second call changes nothing.
  void begin(Duration patience, Instant now) {
    if (wants_) return;
    wants_ = true;
    patience_ = patience;
    busy_at_ = now;
  }
  // `peers`: some peer is in the run. `busy`: one of them is in a call.
  void look(bool peers, bool busy, Instant now) {
    if (busy) busy_at_ = now;
    over_ = wants_ && (over_ || !peers || now - busy_at_ >= patience_);
  }
  bool wants() const { return wants_; }
  bool over() const { return over_; }
  std::optional<Instant> deadline() const {
    if (!wants_ || over_) return std::nullopt;
    return busy_at_ + patience_;
  }

 private:
  bool wants_ = false, over_ = false;
  Duration patience_{0};
  Instant busy_at_;
};

}  // namespace pccl::master
