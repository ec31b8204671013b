#include "csrc/ring/schedule.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {
namespace {

constexpr uint64_t kAlignment =
    64;  // a cache line: blocks and chunks start on one wherever the tensor does

// Two ranks have a core each on a small machine, and every call moves more the larger it is; more
// ranks share caches.
constexpr uint64_t kChunkBytesPair = 1u << 20;
constexpr uint64_t kChunkBytesMany = 256u << 10;
// A block of several chunks keeps several ranks busy at once; below this size a chunk costs more
// than it brings.
constexpr uint64_t kChunksPerBlock = 8;
constexpr uint64_t kChunkBytesMin = 64u << 10;
// Scratch of one operation, however many ranks there are.
constexpr uint64_t kScratchBytesMax = 32u << 20;
static_assert(kChunkBytesPair <= protocol::kChunkBytesMax &&
              kChunkBytesMany <= protocol::kChunkBytesMax);

uint64_t divide_up(uint64_t value, uint64_t by) { return (value + by - 1) / by; }
uint64_t round_up(uint64_t value, uint64_t to) { return divide_up(value, to) * to; }

// A function of what all members know, so that all cut alike.
uint32_t choose_chunk_bytes(Pattern pattern, uint32_t world, uint64_t largest_block) {
  uint64_t most = world <= 2 ? kChunkBytesPair : kChunkBytesMany;
  if (pattern == Pattern::kAllReduce && world > 2) {
    const uint64_t slots = uint64_t{Schedule::kDepth} * (world - 2);
    most = std::clamp(kScratchBytesMax / slots / kAlignment * kAlignment, kChunkBytesMin, most);
  }
  const uint64_t several = round_up(divide_up(largest_block, kChunksPerBlock), kAlignment);
  const uint64_t whole = std::max(round_up(largest_block, kAlignment), kAlignment);
  return static_cast<uint32_t>(std::min({std::max(several, kChunkBytesMin), most, whole}));
}

}  // namespace

Schedule::Schedule(Shape shape) : shape_(std::move(shape)) {
  PCCL_ASSERT(shape_.world >= 1 && shape_.rank < shape_.world && shape_.element_bytes >= 1);
  uint64_t largest = 0;
  switch (shape_.pattern) {
    case Pattern::kAllReduce:
      total_bytes_ = shape_.count * shape_.element_bytes;
      largest = divide_up(shape_.count, shape_.world) * shape_.element_bytes;
      break;
    case Pattern::kAllGather:
      largest = shape_.count * shape_.element_bytes;
      total_bytes_ = largest * shape_.world;
      break;
    case Pattern::kBroadcast: total_bytes_ = largest = shape_.count * shape_.element_bytes; break;
    case Pattern::kTransfer:
      PCCL_ASSERT(shape_.world == 2);
      for (const uint64_t bytes : shape_.block_bytes) {
        block_offsets_.push_back(total_bytes_);
        total_bytes_ += bytes;
        largest = std::max(largest, bytes);
      }
      break;
  }
  block_stride_ = largest;
  chunk_bytes_ = choose_chunk_bytes(shape_.pattern, shape_.world, largest);
  if (shape_.pattern == Pattern::kTransfer) {
    for (const uint64_t bytes : shape_.block_bytes) {
      first_steps_.push_back(slices_);
      slices_ += std::max(divide_up(bytes, chunk_bytes_), uint64_t{1});
    }
    first_steps_.push_back(slices_);
  } else if (shape_.pattern == Pattern::kAllReduce) {
    const uint64_t slice_bytes = uint64_t{shape_.world} * chunk_bytes_;
    slices_ = divide_up(total_bytes_, slice_bytes);
    const uint64_t last = total_bytes_ - (std::max(slices_, uint64_t{1}) - 1) * slice_bytes;
    last_chunk_bytes_ = static_cast<uint32_t>(round_up(divide_up(last, shape_.world), kAlignment));
  } else {
    slices_ = divide_up(largest, chunk_bytes_);
  }
  if (shape_.world == 1 || slices_ == 0) return;
  rounds_ = shape_.pattern == Pattern::kAllReduce   ? 2 * (shape_.world - 1)
            : shape_.pattern == Pattern::kAllGather ? shape_.world - 1
                                                    : 1;
}

bool Schedule::in_ring() const {
  return shape_.pattern == Pattern::kAllReduce || shape_.pattern == Pattern::kAllGather;
}

uint32_t Schedule::block_count() const {
  PCCL_DCHECK(shape_.pattern != Pattern::kAllReduce);
  if (shape_.pattern == Pattern::kAllGather) return shape_.world;
  return shape_.pattern == Pattern::kBroadcast ? 1
                                               : static_cast<uint32_t>(shape_.block_bytes.size());
}

uint64_t Schedule::block_bytes(uint32_t block) const {
  PCCL_DCHECK(block < block_count());
  return shape_.pattern == Pattern::kTransfer ? shape_.block_bytes[block] : block_stride_;
}

uint64_t Schedule::block_offset(uint32_t block) const {
  PCCL_DCHECK(block < block_count());
  return shape_.pattern == Pattern::kTransfer ? block_offsets_[block] : block * block_stride_;
}

uint32_t Schedule::chunk_bytes() const { return chunk_bytes_; }

uint64_t Schedule::step_count() const { return rounds_ == 0 ? 0 : slices_ + rounds_ - 1; }

bool Schedule::sends() const {
  if (rounds_ == 0) return false;
  return in_ring() || shape_.rank + 1 < shape_.world;
}

bool Schedule::receives() const {
  if (rounds_ == 0) return false;
  return in_ring() || shape_.rank > 0;
}

Schedule::Cursor Schedule::first_send() const { return {0, 0, !sends()}; }
Schedule::Cursor Schedule::first_receive() const { return {0, 0, !receives()}; }
void Schedule::advance_send(Cursor& cursor) const { advance(cursor); }
void Schedule::advance_receive(Cursor& cursor) const { advance(cursor); }

// In step t the rounds q with a slice t - q go in rising order. A cursor's position is the round,
// or the block of a transfer.
void Schedule::advance(Cursor& cursor) const {
  PCCL_DCHECK(!cursor.at_end);
  if (in_ring() && ++cursor.position <= std::min<uint64_t>(cursor.step, rounds_ - 1)) return;
  ++cursor.step;
  cursor.at_end = cursor.step == step_count();
  if (in_ring()) {
    cursor.position = static_cast<uint32_t>(cursor.step < slices_ ? 0 : cursor.step - slices_ + 1);
  } else if (!cursor.at_end && shape_.pattern == Pattern::kTransfer) {
    cursor.position += cursor.step == first_steps_[cursor.position + 1];
  }
}

Unit Schedule::unit(const Cursor& cursor, uint32_t block) const {
  PCCL_DCHECK(!cursor.at_end);
  Unit unit;
  unit.step = cursor.step;
  unit.round = static_cast<uint16_t>(in_ring() ? cursor.position : 0);
  unit.block = block;
  const uint64_t before = shape_.pattern == Pattern::kTransfer ? first_steps_[block] : unit.round;
  unit.slice = static_cast<uint32_t>(cursor.step - before);
  uint64_t start = 0, end = 0, chunk = chunk_bytes_;  // of the unit; where its row ends
  if (shape_.pattern == Pattern::kAllReduce) {
    if (unit.slice + 1 == slices_) chunk = last_chunk_bytes_;
    start = uint64_t{unit.slice} * shape_.world * chunk_bytes_ + block * chunk;
    end = total_bytes_;
  } else {
    start = block_offset(block) + uint64_t{unit.slice} * chunk_bytes_;
    end = block_offset(block) + block_bytes(block);
  }
  unit.offset = std::min(start, end);
  unit.bytes = static_cast<uint32_t>(std::min(chunk, end - unit.offset));
  return unit;
}

Unit Schedule::send_unit(const Cursor& cursor) const {
  if (!in_ring()) return unit(cursor, cursor.position);
  return unit(cursor, (shape_.rank + shape_.world - cursor.position % shape_.world) % shape_.world);
}

Unit Schedule::receive_unit(const Cursor& cursor) const {
  if (!in_ring()) return unit(cursor, cursor.position);
  return unit(cursor,
              (shape_.rank + 2 * shape_.world - 1 - cursor.position % shape_.world) % shape_.world);
}

Action Schedule::action(const Unit& received) const {
  if (shape_.pattern != Pattern::kAllReduce || received.round > shape_.world - 2)
    return Action::kStore;
  return received.round < shape_.world - 2 ? Action::kAccumulate : Action::kFinish;
}

bool Schedule::from_scratch(const Unit& sent) const {
  return shape_.pattern == Pattern::kAllReduce && sent.round >= 1 && sent.round <= shape_.world - 2;
}

uint32_t Schedule::slot_count() const {
  if (shape_.pattern != Pattern::kAllReduce || rounds_ == 0) return 0;
  return finish_slot() + 1;
}

// In one step the accumulating rounds are neighbours, as many as there are slices or fewer: counted
// modulo that number they never share a slot.
uint32_t Schedule::slots_per_step() const {
  return static_cast<uint32_t>(std::min<uint64_t>(shape_.world - 2, slices_));
}

uint32_t Schedule::slot(const Unit& received) const {
  PCCL_DCHECK(action(received) == Action::kAccumulate);
  return static_cast<uint32_t>(received.step % kDepth) * slots_per_step() +
         received.round % slots_per_step();
}

uint32_t Schedule::slot_sent(const Unit& sent) const {
  PCCL_DCHECK(from_scratch(sent));
  return static_cast<uint32_t>((sent.step - 1) % kDepth) * slots_per_step() +
         (sent.round - 1) % slots_per_step();
}

uint32_t Schedule::finish_slot() const { return kDepth * slots_per_step(); }

bool Schedule::passed(const Cursor& cursor, uint64_t step, uint32_t position) const {
  return cursor.at_end || cursor.step > step || (cursor.step == step && cursor.position > position);
}

bool Schedule::may_send(const Cursor& send, const Cursor& received) const {
  if (send.at_end) return false;
  if (in_ring()) return send.position == 0 || passed(received, send.step - 1, send.position - 1);
  return shape_.rank == 0 || received.at_end || received.step > send.step;
}

// What arrives in step t leaves in step t + 1, and its slot is taken again in step t + kDepth.
uint64_t Schedule::credit(const Cursor& sent) const {
  const bool scratch_is_enough = shape_.pattern != Pattern::kAllReduce || shape_.world == 2;
  if (scratch_is_enough || sent.at_end) return step_count();
  return std::min(step_count(), std::max<uint64_t>(sent.step, 1) - 1 + kDepth);
}

// The last round of slice s comes at the end of step s + rounds - 1.
uint64_t Schedule::finished(const Cursor& received) const {
  PCCL_DCHECK(shape_.pattern == Pattern::kAllReduce);
  if (received.at_end) return shape_.count;
  const uint64_t slices = std::max<uint64_t>(received.step + 1, rounds_) - rounds_;
  return slices * shape_.world * chunk_bytes_ / shape_.element_bytes;
}

}  // namespace pccl::ring
