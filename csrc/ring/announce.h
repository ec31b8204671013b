// announce: makes the effects that report the progress of an operation, and its end on this peer.
// Each is a function of one operation alone.
#pragma once

#include "csrc/ring/events.h"
#include "csrc/ring/op_table.h"

namespace pccl::ring {

// Reports progress, at most about 64 times for an operation: often enough that little work is
// repeated after a restart of the operation, and rarely enough that the reports cost nothing. A
// one-shot operation reports none, because all its elements become final at once.
void announce_progress(Operation& operation, Effects& effects);
// Announces OpTransferred, if all chunks are sent and received. If `operation` is a part or a leg,
// the whole operation is announced, once all its parts are finished.
void announce_if_transferred(Operation& operation, Effects& effects);

}  // namespace pccl::ring
