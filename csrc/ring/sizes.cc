#include "csrc/ring/sizes.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {
namespace {

// Bytes of a cache line: blocks and chunks start on one if the tensor does.
constexpr uint64_t kAlignment = 64;

// The largest chunk of two ranks that are not on a wan path. On a small machine, two ranks have a
// core each, and larger system calls move more bytes. More ranks share caches, so they use smaller
// chunks (kChunkBytesNear).
constexpr uint64_t kChunkBytesPair = 1u << 20;
static_assert(kChunkBytesPair <= protocol::kChunkBytesMax);
// The smallest chunk on wan paths, unless a block is smaller. It fits into the first window of a
// new connection, ten segments (RFC 6928).
constexpr uint64_t kChunkBytesWanMin = 14u << 10;
constexpr uint64_t kChunksPerBlockWan = 64;
// Chunks of a block on other paths, if they do not get smaller than the minimum. A block of several
// chunks keeps several ranks busy at once. Below the minimum size, a chunk costs more than it
// brings.
constexpr uint64_t kChunksPerBlock = 8;
constexpr uint64_t kChunkBytesMin = 64u << 10;
// Chunks are cut so small that the scratch of one operation has at most this many bytes, for any
// number of ranks, but not smaller than the minimum.
constexpr uint64_t kScratchBytesMax = 32u << 20;

// On wan paths, scratch of this many bytes limits the number of steps in flight, unless the shape
// asks for more scratch. With this scratch, at most kDepthMax steps are in flight: further steps
// would only wait.
constexpr uint64_t kScratchBytesWan = 32u << 20;
constexpr uint64_t kDepthMax = 256;
// In a pairwise exchange that is not restored, one direction may be ahead of the other by this
// number of bytes.
constexpr uint64_t kEagerGrantBytes = 32u << 20;

uint64_t divide_up(uint64_t value, uint64_t by) { return (value + by - 1) / by; }
uint64_t round_up(uint64_t value, uint64_t to) { return divide_up(value, to) * to; }

// Depends only on values that all members know, so that all members cut the tensor alike. `slots`:
// the number of scratch slots that a slice needs.
uint32_t choose_chunk_bytes(const PatternRow& row, const Shape& shape, uint64_t slots,
                            uint64_t largest_block) {
  const bool wan = shape.wan;
  const uint64_t per_block = wan ? kChunksPerBlockWan : kChunksPerBlock;
  const uint64_t least = wan ? kChunkBytesWanMin : kChunkBytesMin;
  uint64_t most = wan                ? protocol::kChunkBytesWan
                  : shape.yields     ? protocol::kChunkBytesOfState
                  : shape.world <= 2 ? kChunkBytesPair
                                     : protocol::kChunkBytesNear;
  const bool of_slots = row.in_ring() || row.by_owners();
  if (of_slots && row.reduces && shape.world > 2) {
    const uint64_t of_slot = kScratchBytesMax / (Sizes::kDepth * slots);
    most = std::clamp(of_slot / kAlignment * kAlignment, least, most);
  }
  const uint64_t several = round_up(divide_up(largest_block, per_block), kAlignment);
  const uint64_t whole = std::max(round_up(largest_block, kAlignment), kAlignment);
  if (row.is_one_shot()) return static_cast<uint32_t>(whole);  // the size of its slots
  return static_cast<uint32_t>(std::min({std::max(several, least), most, whole}));
}

}  // namespace

Sizes::Sizes(Shape all)
    : shape(std::move(all)),
      row(row_of(shape.pattern)),
      encoding(memory::encoding_of_contributions(shape.format)),
      result_encoding(memory::encoding_of_result(shape.format)) {
  PCCL_ASSERT(shape.world >= 1 && shape.rank < shape.world && shape.element_bytes >= 1);
  PCCL_ASSERT(!row.is_listed() || shape.world == 2);
  PCCL_ASSERT(!row.in_parts() || shape.count == 0);
  PCCL_ASSERT(!row.by_owners() || shape.shares.size() == shape.world);
  PCCL_ASSERT(!shape.format.quantizes() || row.by_owners() || row.overtakes() || row.is_sliced());
  PCCL_ASSERT(!shape.leg || (row.in_legs() && shape.leg->from != shape.leg->to &&
                             (shape.leg->from == shape.rank || shape.leg->to == shape.rank)));
  lay_out();
  if (shape.leg && row.is_one_shot()) {  // a short way, because a small operation has many legs
    chunk_bytes = slot_bytes = static_cast<uint32_t>(round_up(total_bytes, kAlignment));
    slices = rounds = total_bytes > 0 ? 1 : 0;
    return;
  }
  cut_blocks();
  if (shape.world == 1 || slices == 0) return;
  const uint32_t once_around = shape.world - 1;
  if (row.is_one_shot()) return;  // only its legs have rounds
  if (row.by_owners()) {
    rounds = (shape.contributes() ? 1 : 0) + (shape.returns() ? 1 : 0);
    first_round = shape.contributes() ? 0 : 1;
  } else {
    rounds = row.in_ring() ? reducing_rounds() + (row.gathers ? once_around : 0) : 1;
  }
  choose_depth();
}

void Sizes::choose_depth() {
  if (row.overtakes()) {
    depth = static_cast<uint32_t>(std::min(kEagerGrantBytes / chunk_bytes, step_count()));
  } else if (shape.wan && (row.by_owners() || slots_per_step() > 0)) {
    standard_depth = depth_with(kScratchBytesWan);
    depth = depth_with(std::max(kScratchBytesWan, shape.scratch_bytes));
    return;
  }
  standard_depth = depth;
}

// The depth with this much scratch. In the direct pattern it is the same for all legs.
uint32_t Sizes::depth_with(uint64_t scratch) const {
  const uint64_t step_bytes =
      uint64_t{row.by_owners() ? slots_per_slice() : slots_per_step()} * slot_bytes;
  const uint64_t most = row.by_owners() ? slices + 1 : step_count();
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::min(scratch / step_bytes, most), kDepth,
                                                    kDepthMax * scratch / kScratchBytesWan));
}

// Sets the sizes and offsets of the blocks.
void Sizes::lay_out() {
  const uint64_t bytes = shape.count * shape.element_bytes;
  switch (row.layout) {
    case Layout::kSliced:
      total_bytes = bytes;
      block_stride = divide_up(shape.count, shape.world) * shape.element_bytes;
      break;
    case Layout::kShared: {
      const uint64_t largest = *std::max_element(shape.shares.begin(), shape.shares.end());
      total_bytes = bytes;
      block_stride = divide_up(bytes * largest, protocol::kSharesTotal);
      break;
    }
    case Layout::kPerRank:
      block_stride = bytes;
      total_bytes = bytes * shape.world;
      break;
    case Layout::kWhole: total_bytes = block_stride = bytes; break;
    case Layout::kListed:
      for (const uint64_t block : shape.block_bytes) {
        block_offsets.push_back(total_bytes);
        total_bytes += block;
        block_stride = std::max(block_stride, block);
      }
      break;
  }
}

// Cuts the blocks into chunks. On wan paths the size of a chunk on the wire matters, on other paths
// its size in memory.
void Sizes::cut_blocks() {
  const uint64_t width = shape.element_bytes;
  const uint64_t smaller = encoding && shape.wan ? 8 * width / encoding->bits : 1;
  grain_bytes = static_cast<uint32_t>(
      encoding ? round_up(memory::grain_of(shape.format) * width, kAlignment) : kAlignment);
  const uint64_t slots = row.by_owners() ? slots_per_slice() : slots_of_rounds();
  const uint64_t chosen = smaller * choose_chunk_bytes(row, shape, slots, block_stride / smaller);
  chunk_bytes = static_cast<uint32_t>(round_up(chosen, grain_bytes));
  if (recodes() || (encoding && row.by_owners())) {
    const uint64_t grains = kScratchBytesMax / (kDepth * slots) / slot_bytes_of(grain_bytes);
    chunk_bytes = std::min(chunk_bytes, static_cast<uint32_t>(grains) * grain_bytes);
  }
  if (row.is_listed()) {
    for (const uint64_t bytes : shape.block_bytes) {
      first_steps.push_back(slices);
      slices += std::max(divide_up(bytes, chunk_bytes), uint64_t{1});
    }
    first_steps.push_back(slices);
  } else if (row.is_sliced()) {
    const uint64_t slice_bytes = uint64_t{shape.world} * chunk_bytes;
    slices = divide_up(total_bytes, slice_bytes);
    const uint64_t last = total_bytes - (std::max(slices, uint64_t{1}) - 1) * slice_bytes;
    last_chunk_bytes = static_cast<uint32_t>(round_up(divide_up(last, shape.world), grain_bytes));
  } else if (row.is_shared()) {
    cut = Cut(total_bytes, shape.shares, chunk_bytes, grain_bytes);
    chunk_bytes = cut.block_bytes_max();
    slices = cut.slices();
  } else {
    slices = divide_up(block_stride, chunk_bytes);
  }
  slot_bytes = slot_bytes_of(chunk_bytes);
}

uint32_t Sizes::slot_bytes_of(uint32_t bytes) const {
  const uint32_t most = std::max(memory::wire_bytes(encoding, bytes, shape.element_bytes),
                                 memory::wire_bytes(result_encoding, bytes, shape.element_bytes));
  return static_cast<uint32_t>(round_up(most, kAlignment));
}

uint32_t Sizes::block_count() const {
  PCCL_DCHECK(!row.is_sliced() && !row.is_shared() && !row.is_one_shot());
  if (row.is_per_rank()) return shape.world;
  return row.is_listed() ? static_cast<uint32_t>(shape.block_bytes.size()) : 1;
}

uint64_t Sizes::block_bytes(uint32_t block) const {
  PCCL_DCHECK(block < block_count());
  return row.is_listed() ? shape.block_bytes[block] : block_stride;
}

uint64_t Sizes::block_offset(uint32_t block) const {
  PCCL_DCHECK(block < block_count());
  return row.is_listed() ? block_offsets[block] : block * block_stride;
}

uint64_t Sizes::step_count() const { return rounds == 0 ? 0 : slices + rounds - 1; }

// An owner needs a slot for each contribution to a slice, and one more for the result if it holds
// results. If there are codes, all members count that slot, also members that own nothing: so all
// cut the tensor alike, and a leg has the same depth at both ends.
uint32_t Sizes::slots_per_slice() const { return shape.world - 1 + (result_encoding ? 1 : 0); }

// Returns the number of received rounds whose chunks wait in a slot. With codes, these are all
// rounds but the last; without codes, the rounds that accumulate.
uint32_t Sizes::slots_of_rounds() const {
  const uint32_t around = shape.world - 1;
  return recodes() ? 2 * around - 1 : around - 1;
}

// Slots that one step needs. The rounds of a step that wait in a slot have consecutive numbers, at
// most slots_of_rounds() of them and at most one for each slice. So the slot of a round, its number
// modulo this result, belongs to no other round of the step.
uint32_t Sizes::slots_per_step() const {
  if (row.in_chain()) return 1;
  return static_cast<uint32_t>(std::min<uint64_t>(slots_of_rounds(), slices));
}

void Sizes::check() const {
  PCCL_ASSERT(chunk_bytes >= 1 && depth >= 1);
  PCCL_ASSERT(row.is_one_shot() || chunk_bytes <= protocol::kChunkBytesMax);
  PCCL_ASSERT(last_chunk_bytes <= chunk_bytes || !row.is_sliced());
  if (row.is_listed()) {
    PCCL_ASSERT(block_offsets.size() == shape.block_bytes.size());
    PCCL_ASSERT(first_steps.size() == block_offsets.size() + 1 && first_steps.back() == slices);
  }
  PCCL_ASSERT(rounds == 0 || shape.world > 1);
  if (!row.is_sliced() || rounds == 0) return;
  PCCL_ASSERT(slices * shape.world * chunk_bytes >= total_bytes);
  PCCL_ASSERT((slices - 1) * shape.world * chunk_bytes < total_bytes);
}

}  // namespace pccl::ring
