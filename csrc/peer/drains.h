// Drains: the operations that have ended, until the ring holds their memory no longer. Then the
// application gets its memory back, with the outcome, or the operation starts again. It belongs to
// Operations.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/peer/context.h"

namespace pccl::peer {

class Drains {
 public:
  explicit Drains(Context& context) : context_(context) {}

  // FinishOp follows, once drained. REQUIRES: not under way
  void finish(Epoch epoch, OpKey key, Handle handle, Status outcome = {});
  // drained() then returns kAgain. REQUIRES: not under way
  void restart(Epoch epoch, OpKey key, Handle handle);
  // The operation restarts no more. `more`: how many OpDrained follow in addition. REQUIRES:
  // restart() was called
  void abort(Epoch epoch, OpKey key, Status outcome, int more);

  enum class Drained { kUnknown, kWaits, kFinished, kAgain };
  Drained drained(Epoch epoch, OpKey key);

  struct Drain {
    Handle handle = 0;
    std::optional<Status> outcome;  // none: the operation starts again
    int left = 1;                   // number of OpDrained still to come from the ring
  };
  const std::map<std::pair<Epoch, OpKey>, Drain>& all() const { return drains_; }
  bool contains(Epoch epoch, OpKey key) const { return drains_.contains({epoch, key}); }

 private:
  Context& context_;
  std::map<std::pair<Epoch, OpKey>, Drain> drains_;
};

}  // namespace pccl::peer
