// announce: the effects by which an operation reports its progress and its end on this peer. Each
// is a function of one operation alone.
#pragma once

#include "csrc/ring/events.h"
#include "csrc/ring/op_table.h"

namespace pccl::ring {

// Reports progress about 64 times per operation at most: often enough that little work is repeated
// after a restart of the operation, and rarely enough that the reports cost nothing. A one-shot
// operation has none, because its elements are final all at once.
void announce_progress(Operation& operation, Effects& effects);
// Does nothing if some chunk is not sent or received yet. A part or leg announces the whole
// operation.
void announce_if_transferred(Operation& operation, Effects& effects);

}  // namespace pccl::ring
