#include "csrc/ring/buffers.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::ring {
namespace {

// A multiple of every element's size: pieces are cut between cache lines.
constexpr size_t kCacheLine = 64;

}  // namespace

OpBuffers::OpBuffers(const Shape& shape, Memory memory, memory::Pool& pool)
    : schedule_(shape),
      memory_(std::move(memory)),
      reduction_{memory_.dtype, memory_.reduce, memory_.contributors},
      slots_per_slab_(memory::Pool::kSlabBytes / schedule_.chunk_bytes()),
      scratch_(pool),
      undo_(pool) {
  // The schedule's credit depends on `restored`, the saving on `save`.
  PCCL_ASSERT(!schedule_.overtakes() || shape.restored == memory_.save);
  if (memory_.spans.size() == 1) {
    PCCL_ASSERT(memory_.spans[0].size() >= schedule_.total_bytes());
    return;
  }
  PCCL_ASSERT(memory_.spans.size() == schedule_.block_count());
  for (uint32_t index = 0; index < schedule_.block_count(); ++index) {
    PCCL_ASSERT(memory_.spans[index].size() >= schedule_.block_bytes(index));
  }
}

Result<std::unique_ptr<OpBuffers>> OpBuffers::make(const Shape& shape, Memory memory,
                                                   memory::Pool& pool) {
  pool.turn();
  std::unique_ptr<OpBuffers> buffers(new OpBuffers(shape, std::move(memory), pool));
  Status status = buffers->reserve();
  if (!status.ok()) return status;
  return buffers;
}

Status OpBuffers::reserve() {
  const uint64_t slots = schedule_.slot_count();
  const uint64_t scratch_bytes = slots / slots_per_slab_ * memory::Pool::kSlabBytes +
                                 slots % slots_per_slab_ * schedule_.chunk_bytes();
  saves_ = schedule_.receives() && (memory_.save || schedule_.overtakes());
  if (scratch_.reserve(scratch_bytes) && undo_.reserve(saved_bytes(), schedule_.chunk_count()))
    return {};
  const std::string scratch =
      std::to_string(scratch_bytes + (memory_.save ? 0 : saved_bytes())) + " bytes of scratch";
  if (!memory_.save) return {Code::kSystem, "no memory for " + scratch + "; free some", {}};
  return {Code::kSystem,
          "no memory for " + scratch + " and " + std::to_string(saved_bytes()) +
              " bytes to restore the tensor from if the operation fails; free some, use smaller "
              "tensors, or give up restoring with PCCL_RESTORE=off"};
}

// The whole tensor if it is to be restored. Otherwise as many bytes as upstream may be ahead of
// what has been sent; the row is then used as a ring buffer.
uint64_t OpBuffers::saved_bytes() const {
  if (!saves_) return 0;
  if (memory_.save) return schedule_.total_bytes();
  return std::min(schedule_.total_bytes(), uint64_t{schedule_.depth()} * schedule_.chunk_bytes());
}

uint64_t OpBuffers::saved_at(const Chunk& chunk) const {
  if (memory_.save) return chunk.offset;
  return chunk.offset % (uint64_t{schedule_.depth()} * schedule_.chunk_bytes());
}

std::byte* OpBuffers::memory_of(const Chunk& chunk) const {
  if (memory_.spans.size() == 1) return memory_.spans[0].data() + chunk.offset;
  return memory_.spans[chunk.block].data() + (chunk.offset - schedule_.block_offset(chunk.block));
}

std::byte* OpBuffers::slot(uint32_t index) const {
  const uint64_t slab = index / slots_per_slab_;
  return scratch_
      .at(slab * memory::Pool::kSlabBytes + index % slots_per_slab_ * schedule_.chunk_bytes())
      .data();
}

std::span<const std::byte> OpBuffers::source(const Chunk& sent) const {
  PCCL_DCHECK(!overtakes() && sent.encoding == memory::Encoding::kPlain);
  if (schedule_.from_scratch(sent)) return {slot(schedule_.slot_sent(sent)), sent.bytes};
  return {memory_of(sent), sent.bytes};
}

void OpBuffers::copy_source(const Chunk& sent, std::span<std::byte> to) const {
  PCCL_DCHECK(sent.encoding == memory::Encoding::kPlain);
  const size_t saved = undo_.saved(sent.id);
  undo_.read(saved_at(sent), to.first(saved));
  std::memcpy(to.data() + saved, memory_of(sent) + saved, sent.bytes - saved);
}

OpBuffers::Landing OpBuffers::land(const Chunk& chunk, Action action, std::span<std::byte> spare) {
  PCCL_DCHECK(chunk.encoding == memory::Encoding::kPlain);
  PCCL_DCHECK(action != Action::kFinish || spare.size() >= chunk.wire_bytes);
  PCCL_DCHECK(undo_.saved(chunk.id) == 0);  // each chunk lands once
  switch (action) {
    case Action::kAccumulate:
      return {chunk, action, {slot(schedule_.slot(chunk)), chunk.wire_bytes}};
    case Action::kFinish: return {chunk, action, spare.first(chunk.wire_bytes)};
    case Action::kGather: return {chunk, action, {slot(chunk.block), chunk.wire_bytes}};
    case Action::kStore: break;
  }
  std::byte* const target = memory_of(chunk);
  if (saves_) undo_.save(chunk.id, saved_at(chunk), target, chunk.bytes);
  return {chunk, action, {target, chunk.wire_bytes}};
}

void OpBuffers::absorb(Landing& landing, size_t at, size_t bytes) {
  const Chunk& chunk = landing.chunk;
  PCCL_ASSERT(at + bytes <= chunk.wire_bytes && at >= landing.reduced);
  if (landing.action == Action::kStore || landing.action == Action::kGather) return;
  const size_t here = at + bytes;
  const size_t whole = here == chunk.bytes ? here : here / kCacheLine * kCacheLine;
  if (whole <= landing.reduced) return;
  const size_t piece = whole - landing.reduced;
  const size_t elements = piece / element_bytes(memory_.dtype);
  std::byte* const tensor = memory_of(chunk) + landing.reduced;
  std::byte* const partial = landing.where.data() + landing.reduced;
  const int held = chunk.round + 1;  // round 0 brings the contribution of upstream
  if (landing.action == Action::kAccumulate) {
    memory::reduce(reduction_, held, partial, partial, tensor, elements);
  } else {
    if (saves_) undo_.save(chunk.id, saved_at(chunk) + landing.reduced, tensor, piece);
    const bool own_first = schedule_.overtakes() && schedule_.shape().rank == 0;
    memory::reduce(reduction_, held, tensor, own_first ? tensor : partial,
                   own_first ? partial : tensor, elements);
  }
  landing.reduced = whole;
}

std::span<std::byte> OpBuffers::tensor() const {
  return memory_.spans[0].first(schedule_.total_bytes());
}

void OpBuffers::keep_own() {
  if (schedule_.is_one_shot() && schedule_.slot_count() > 0)
    std::memcpy(slot(schedule_.shape().rank), tensor().data(), tensor().size());
}

void OpBuffers::combine() {
  PCCL_ASSERT(!combined_);
  combined_ = true;
  const size_t elements = tensor().size() / element_bytes(memory_.dtype);
  std::byte* const result = tensor().data();
  for (uint32_t ring_index = 1; ring_index < schedule_.slot_count(); ++ring_index) {
    const std::byte* const partial = ring_index == 1 ? slot(0) : result;
    memory::reduce(reduction_, static_cast<int>(ring_index), result, partial, slot(ring_index),
                   elements);
  }
}

void OpBuffers::restore(uint64_t from) {
  if (!memory_.save) return;
  if (combined_ && from == 0) std::memcpy(tensor().data(), own().data(), own().size());
  for (uint64_t id = 0; id < schedule_.chunk_count(); ++id) {
    if (undo_.saved(id) == 0) continue;
    const Chunk chunk = schedule_.chunk_received(id);
    undo_.restore(id, chunk.offset, memory_of(chunk), from - std::min(from, chunk.offset));
  }
}

void OpBuffers::close(uint64_t end) {
  scratch_.shrink(0);
  undo_.shrink(end);
}

}  // namespace pccl::ring
