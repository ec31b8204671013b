// Drains keeps the operations that have ended or begin again, until the ring no longer uses their
// memory. Then the application gets its memory back with the outcome, or the operation begins
// again. It belongs to Operations.
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

  // Emits FinishOp with `outcome` when the operation is drained. REQUIRES: no drain of it is under
  // way
  void finish(Epoch epoch, OpKey key, Handle handle, Status outcome = {});
  // When the operation is drained, drained() returns kAgain. REQUIRES: no drain of it is under way
  void restart(Epoch epoch, OpKey key, Handle handle);
  // An operation that was to begin again ends with `outcome` instead. `more`: the number of
  // additional OpDrained that follow. REQUIRES: restart() was called
  void abort(Epoch epoch, OpKey key, Status outcome, int more);

  enum class Drained { kUnknown, kWaits, kFinished, kAgain };
  Drained drained(Epoch epoch, OpKey key);

  struct Drain {
    Handle handle = 0;
    std::optional<Status> outcome;  // none: the operation starts again
    int left = 1;                   // number of OpDrained that the ring still owes
  };
  const std::map<std::pair<Epoch, OpKey>, Drain>& all() const { return drains_; }
  bool contains(Epoch epoch, OpKey key) const { return drains_.contains({epoch, key}); }

 private:
  Context& context_;
  std::map<std::pair<Epoch, OpKey>, Drain> drains_;
};

}  // namespace pccl::peer
