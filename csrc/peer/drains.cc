#include "csrc/peer/drains.h"

#include "csrc/base/assert.h"

namespace pccl::peer {

void Drains::finish(Epoch epoch, OpKey key, Handle handle, Status outcome) {
  const bool fresh =
      drains_.emplace(std::pair{epoch, key}, Drain{handle, std::move(outcome)}).second;
  PCCL_ASSERT(fresh);
}

void Drains::restart(Epoch epoch, OpKey key, Handle handle) {
  const bool fresh = drains_.emplace(std::pair{epoch, key}, Drain{handle, std::nullopt}).second;
  PCCL_ASSERT(fresh);
}

void Drains::abort(Epoch epoch, OpKey key, Status outcome, int more) {
  Drain& drain = drains_.at({epoch, key});
  PCCL_ASSERT(!drain.outcome && !outcome.ok());
  drain.outcome = std::move(outcome);
  drain.left += more;
}

Drains::Drained Drains::drained(Epoch epoch, OpKey key) {
  const auto at = drains_.find({epoch, key});
  if (at == drains_.end()) return Drained::kUnknown;
  if (--at->second.left > 0) return Drained::kWaits;
  const Drain drain = std::move(at->second);
  drains_.erase(at);
  if (!drain.outcome) return Drained::kAgain;
  context_.emit(FinishOp{drain.handle, *drain.outcome, epoch, key, {}});
  return Drained::kFinished;
}

}  // namespace pccl::peer
