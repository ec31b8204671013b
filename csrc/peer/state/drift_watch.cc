#include "csrc/peer/state/drift_watch.h"

#include <string>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/drift.h"

namespace pccl::peer {

void DriftWatch::synced(const Joint::OpenCall& call, uint64_t revision,
                        const protocol::StateEntries& elected, FinishJoint& result) {
  PCCL_ASSERT(call.vote.kind == protocol::JointKind::kSyncSharedState);
  PCCL_ASSERT(result.corrected.empty() && !result.drifted);
  const auto last = std::exchange(last_, revision);
  const protocol::StateEntries& own = call.entries();
  for (const uint32_t position : protocol::differing(own, elected))
    result.corrected.push_back(elected[position].key);
  auto drift = protocol::drift_of({last, call.vote.offer, own, revision, elected});
  if (!drift) return;
  result.drifted = true;
  drift->count = ++count_;
  if (!protocol::is_announced(count_)) return;
  context_.note(LogLevel::kWarning, protocol::drift_warning("this process", *drift));
}

}  // namespace pccl::peer
