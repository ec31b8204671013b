#include "csrc/ring/saved_bytes.h"

#include <algorithm>

namespace pccl::ring {
namespace {

// The largest number of bytes by which upstream may be ahead of this rank's sending.
uint64_t overtaking_bytes(const Schedule& schedule) {
  return uint64_t{schedule.depth()} * schedule.chunk_bytes();
}

}  // namespace

uint64_t saved_bytes(const Schedule& schedule, const Memory& memory) {
  const Shape& shape = schedule.shape();
  if (!memory.save) {
    if (!schedule.row().overtakes() || !schedule.receives()) return 0;
    return std::min(schedule.total_bytes(), overtaking_bytes(schedule));
  }
  if (memory.absent && shape.world == 1) return memory.spans[0].size();
  if (schedule.row().has_parts()) {
    uint64_t bytes = 0;
    for (const auto& span : memory.spans) bytes += span.size();
    if (memory.in_place()) return 0;  // the slot of this rank has the old bytes
    return schedule.row().in_parts() ? memory.spans[shape.rank].size() : bytes;
  }
  if (schedule.row().scatters()) return memory.spans[0].size();
  if (schedule.row().by_owners()) return shape.world > 1 ? schedule.total_bytes() : 0;
  const bool own_block = schedule.row().is_per_rank() && !memory.in_place();
  return schedule.receives() || own_block ? schedule.total_bytes() : 0;
}

uint64_t saved_at(const Schedule& schedule, const Memory& memory, const Chunk& chunk) {
  if (schedule.row().scatters()) return chunk.offset - schedule.block_offset(chunk.block);
  if (memory.save) return chunk.offset;
  return chunk.offset % overtaking_bytes(schedule);
}

}  // namespace pccl::ring
