#include "csrc/peer/state/drift_watch.h"

#include <string>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/peer/context.h"
#include "csrc/protocol/drift.h"

namespace pccl::peer {

void DriftWatch::synced(const protocol::Offer& offer, const protocol::StateEntries& own,
                        uint64_t revision, const protocol::StateEntries& elected,
                        FinishJoint& result) {
  PCCL_ASSERT(result.corrected.empty() && !result.drifted);
  const auto last = std::exchange(last_, revision);
  for (const uint32_t position : protocol::differing(own, elected))
    result.corrected.push_back(elected[position].key);
  auto drift = protocol::drift_of({last, offer, own, revision, elected});
  if (!drift) return;
  result.drifted = true;
  drift->count = ++count_;
  if (!protocol::is_announced(count_)) return;
  context_.note(LogLevel::kWarning, LogEvent::kStatesDiffer,
                protocol::drift_warning("this process", *drift));
}

}  // namespace pccl::peer
