// The part of Schedule for the direct pattern: the chunks of a leg, the slots of contributions, and
// the chunks that the operation writes.

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/ring/schedule.h"

namespace pccl::ring {

Chunk Schedule::chunk_of_leg(uint64_t id) const {
  PCCL_DCHECK(shape_.leg && id < chunk_count());
  const uint64_t slice = id / rounds_;
  const uint64_t round = round_ + id % rounds_;
  const bool contribution = round == 0;
  Chunk chunk = written(slice * shape_.world + (contribution ? shape_.leg->to : shape_.leg->from));
  chunk.id = id;
  chunk.step = slice + id % rounds_;
  chunk.round = static_cast<uint16_t>(round);
  encode(chunk, contribution ? encoding_ : result_encoding_);
  if (contribution && receives()) chunk.slot = slot_from(shape_.leg->from, slice);
  return chunk;
}

Chunk Schedule::written(uint64_t index) const {
  if (!by_owners()) return chunk_received(index);
  PCCL_DCHECK(index < written_count());
  const auto rank = static_cast<uint32_t>(index % shape_.world);
  const Cut::Block cut = cut_.block(index / shape_.world, rank);
  Chunk chunk;
  chunk.id = index;
  chunk.slice = static_cast<uint32_t>(index / shape_.world);
  chunk.block = rank;
  chunk.offset = cut.offset;
  chunk.bytes = cut.bytes;
  encode(chunk, result_encoding_);
  return chunk;
}

uint32_t Schedule::slots_of_slices() const {
  return static_cast<uint32_t>(std::min<uint64_t>(depth_, slices_));
}

// The contributions to a slice of an owner, and its result if that is held. All members count a
// result if there are codes, so that all cut alike and a leg has the same depth at both ends.
uint32_t Schedule::slots_per_slice() const { return shape_.world - 1 + (result_encoding_ ? 1 : 0); }

// A slot is used again after depth() slices. Credit sees to it that its sum is computed by then.
uint32_t Schedule::slot_from(uint32_t rank, uint64_t slice) const {
  PCCL_DCHECK(owns() && rank != shape_.rank);
  const uint32_t before = rank < shape_.rank ? rank : rank - 1;
  return static_cast<uint32_t>(slice % depth_) * (shape_.world - 1) + before;
}

// Likewise, and the result before it has left to all others.
uint32_t Schedule::slot_of_result(uint64_t slice) const {
  PCCL_DCHECK(holds_results());
  return slots_of_slices() * (shape_.world - 1) + static_cast<uint32_t>(slice % depth_);
}

uint64_t Schedule::credit_of_owner(uint64_t free) const {
  PCCL_DCHECK(shape_.leg);
  return contributes() ? std::min(step_count(), free + depth_) : step_count();
}

uint64_t Schedule::slices_here(const Cursor& received) const {
  PCCL_DCHECK(shape_.leg);
  return received.at_end ? slices_ : std::max(received.step + 1, rounds_) - rounds_;
}

uint64_t Schedule::elements_in(uint64_t slices) const {
  PCCL_DCHECK(by_owners() && slices <= slices_);
  return std::min(slices * cut_.slice_bytes(), total_bytes_) / shape_.element_bytes;
}

}  // namespace pccl::ring
