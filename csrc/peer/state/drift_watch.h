// DriftWatch: notices that this peer computes other bits than the other members, by the corrections
// of its shared state (csrc/protocol/drift.h). It warns in the log of this peer, at growing
// intervals. StateSync owns it, and calls it for each sync_shared_state that has succeeded. It is
// pure, and changes nothing of the call.
// Invariant: the count never falls while this peer is a member.
#pragma once

#include <cstdint>
#include <optional>

#include "csrc/protocol/state.h"

namespace pccl::peer {

struct Context;
struct FinishJoint;

class DriftWatch {
 public:
  explicit DriftWatch(Context& context) : context_(context) {}

  // The call has succeeded at `revision`. `own`: the entries of the offer. `elected`: the entries
  // of the elected state; empty if this peer installs none of them. Sets `corrected` and `drifted`
  // of the result.
  void synced(const protocol::Offer& offer, const protocol::StateEntries& own, uint64_t revision,
              const protocol::StateEntries& elected, FinishJoint& result);

 private:
  Context& context_;
  std::optional<uint64_t> last_;  // the revision that the last such call agreed on
  uint64_t count_ = 0;            // corrections by which this peer drifts
};

}  // namespace pccl::peer
