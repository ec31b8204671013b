#include "csrc/ring/buffers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/ring/kernels.h"

namespace pccl::ring {
namespace {

constexpr size_t kCacheLine =
    64;  // a multiple of every element's size: pieces are cut between lines

}  // namespace

OpBuffers::OpBuffers(const Shape& shape, Memory memory, Pool& pool)
    : schedule_(shape),
      memory_(std::move(memory)),
      slots_per_slab_(Pool::kSlabBytes / schedule_.chunk_bytes()),
      scratch_(pool),
      undo_(pool) {
  if (memory_.spans.size() == 1) {
    PCCL_ASSERT(memory_.spans[0].size() >= schedule_.total_bytes());
    return;
  }
  PCCL_ASSERT(memory_.spans.size() == schedule_.block_count());
  for (uint32_t index = 0; index < schedule_.block_count(); ++index) {
    PCCL_ASSERT(memory_.spans[index].size() >= schedule_.block_bytes(index));
  }
}

Result<std::unique_ptr<OpBuffers>> OpBuffers::make(const Shape& shape, Memory memory, Pool& pool) {
  pool.turn();
  std::unique_ptr<OpBuffers> buffers(new OpBuffers(shape, std::move(memory), pool));
  Status status = buffers->reserve();
  if (!status.ok()) return status;
  return buffers;
}

Status OpBuffers::reserve() {
  const uint64_t slots = schedule_.slot_count();
  const uint64_t scratch_bytes = slots / slots_per_slab_ * Pool::kSlabBytes +
                                 slots % slots_per_slab_ * schedule_.chunk_bytes();
  saves_ = memory_.save && schedule_.receives();
  const uint64_t saved_bytes = saves_ ? schedule_.total_bytes() : 0;
  if (scratch_.reserve(scratch_bytes) && undo_.reserve(saved_bytes)) return {};
  return {Code::kSystem,
          "no memory for " + std::to_string(scratch_bytes) + " bytes of scratch and " +
              std::to_string(saved_bytes) +
              " bytes to restore the tensor from if the operation fails; free some, use smaller "
              "tensors, or give up restoring with PCCL_RESTORE=off"};
}

std::byte* OpBuffers::place(const Unit& unit) const {
  if (memory_.spans.size() == 1) return memory_.spans[0].data() + unit.offset;
  return memory_.spans[unit.block].data() + (unit.offset - schedule_.block_offset(unit.block));
}

std::byte* OpBuffers::slot(uint32_t index) const {
  const uint64_t slab = index / slots_per_slab_;
  return scratch_.at(slab * Pool::kSlabBytes + index % slots_per_slab_ * schedule_.chunk_bytes())
      .data();
}

std::span<const std::byte> OpBuffers::source(const Unit& sent) const {
  if (schedule_.from_scratch(sent)) return {slot(schedule_.slot_sent(sent)), sent.bytes};
  return {place(sent), sent.bytes};
}

std::span<std::byte> OpBuffers::land(const Unit& unit, Action action) {
  unit_ = unit;
  action_ = action;
  reduced_ = 0;
  switch (action) {
    case Action::kAccumulate: return {slot(schedule_.slot(unit)), unit.bytes};
    case Action::kFinish: return {slot(schedule_.finish_slot()), unit.bytes};
    case Action::kStore: break;
  }
  std::byte* const target = place(unit);
  if (saves_) undo_.save(target, unit.bytes);
  return {target, unit.bytes};
}

void OpBuffers::absorb(size_t at, size_t bytes) {
  PCCL_ASSERT(at + bytes <= unit_.bytes && at >= reduced_);
  if (action_ == Action::kStore) return;
  const size_t here = at + bytes;
  const size_t whole = here == unit_.bytes ? here : here / kCacheLine * kCacheLine;
  if (whole <= reduced_) return;
  const size_t piece = whole - reduced_;
  const size_t elements = piece / element_bytes(memory_.dtype);
  std::byte* const tensor = place(unit_) + reduced_;
  if (action_ == Action::kAccumulate) {
    std::byte* const partial = slot(schedule_.slot(unit_)) + reduced_;
    reduce_into(memory_.dtype, memory_.reduce, partial, tensor, elements);
  } else {
    const std::byte* const partial = slot(schedule_.finish_slot()) + reduced_;
    if (saves_) undo_.save(tensor, piece);
    reduce_out(memory_.dtype, memory_.reduce, tensor, partial, tensor, elements);
    finish(memory_.dtype, memory_.reduce, tensor, elements, memory_.contributors);
  }
  reduced_ = whole;
}

// The units that were saved, in the order in which they were.
void OpBuffers::restore(uint64_t from) {
  Schedule::Cursor cursor = schedule_.first_receive();
  for (uint64_t at = 0; at < undo_.length(); schedule_.advance_receive(cursor)) {
    const Unit unit = schedule_.receive_unit(cursor);
    if (schedule_.action(unit) == Action::kAccumulate) continue;
    const uint64_t bytes = std::min<uint64_t>(unit.bytes, undo_.length() - at);
    if (unit.offset >= from && unit.offset < restored_from_) undo_.restore(at, place(unit), bytes);
    at += bytes;
  }
  restored_from_ = std::min(restored_from_, from);
}

void OpBuffers::close() {
  scratch_.shrink(0);
  undo_.close();
}

}  // namespace pccl::ring
