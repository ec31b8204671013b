// saved_bytes: which bytes of an operation's memory are saved before they are overwritten, and
// their places in the row of saved bytes. Pure functions of the schedule and of the description of
// the memory, without its content. OpBuffers saves the bytes and puts them back (promise P2).
#pragma once

#include <cstdint>

#include "csrc/ring/chunk.h"
#include "csrc/ring/lent_memory.h"
#include "csrc/ring/schedule.h"

namespace pccl::ring {

// The size of the row of saved bytes: if the written bytes are to be restored, the size of all of
// them. Otherwise, if chunks overtake others, the most bytes that upstream may be ahead of this
// rank's sending; the row is then a ring buffer.
uint64_t saved_bytes(const Schedule& schedule, const Memory& memory);

// The place of the old bytes of a written chunk.
uint64_t saved_at(const Schedule& schedule, const Memory& memory, const Chunk& chunk);

}  // namespace pccl::ring
