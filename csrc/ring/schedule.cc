#include "csrc/ring/schedule.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/eager.h"

namespace pccl::ring {
namespace {

// A cache line: blocks and chunks start on one if the tensor does.
constexpr uint64_t kAlignment = 64;

// On a small machine, two ranks have a core each, and larger system calls move more bytes. More
// ranks share caches, so they use smaller chunks (kChunkBytesNear).
constexpr uint64_t kChunkBytesPair = 1u << 20;
static_assert(kChunkBytesPair <= protocol::kChunkBytesMax);
// Wan paths. A chunk of a small tensor fits into the first window of a new connection, ten segments
// (RFC 6928).
constexpr uint64_t kChunkBytesWanMin = 14u << 10;
constexpr uint64_t kChunksPerBlockWan = 64;
// A block of several chunks keeps several ranks busy at once. Below the minimum size, a chunk costs
// more than it brings.
constexpr uint64_t kChunksPerBlock = 8;
constexpr uint64_t kChunkBytesMin = 64u << 10;
// Scratch of one operation, for any number of ranks.
constexpr uint64_t kScratchBytesMax = 32u << 20;

// Wan paths: this much scratch limits the steps in flight, unless the shape asks for more. With
// this much, more steps than kDepthMax would only wait.
constexpr uint64_t kScratchBytesWan = 32u << 20;
constexpr uint64_t kDepthMax = 256;
// A pairwise exchange that is not restored: how far one direction may be ahead of the other.
constexpr uint64_t kEagerGrantBytes = 32u << 20;

uint64_t divide_up(uint64_t value, uint64_t by) { return (value + by - 1) / by; }
uint64_t round_up(uint64_t value, uint64_t to) { return divide_up(value, to) * to; }

// Depends only on values that all members know, so that all cut alike. `slots`: the slots of a
// slice.
uint32_t choose_chunk_bytes(const PatternRow& row, const Shape& shape, uint64_t slots,
                            uint64_t largest_block) {
  const bool wan = shape.wan;
  const uint64_t per_block = wan ? kChunksPerBlockWan : kChunksPerBlock;
  const uint64_t least = wan ? kChunkBytesWanMin : kChunkBytesMin;
  uint64_t most = wan                ? protocol::kChunkBytesWan
                  : shape.yields     ? protocol::kChunkBytesOfState
                  : shape.world <= 2 ? kChunkBytesPair
                                     : protocol::kChunkBytesNear;
  const bool of_slots = row.travel == Travel::kRing || row.travel == Travel::kOwners;
  if (of_slots && row.reduces && shape.world > 2) {
    const uint64_t of_slot = kScratchBytesMax / (Schedule::kDepth * slots);
    most = std::clamp(of_slot / kAlignment * kAlignment, least, most);
  }
  const uint64_t several = round_up(divide_up(largest_block, per_block), kAlignment);
  const uint64_t whole = std::max(round_up(largest_block, kAlignment), kAlignment);
  if (row.travel == Travel::kContributions) return static_cast<uint32_t>(whole);  // of its slots
  return static_cast<uint32_t>(std::min({std::max(several, least), most, whole}));
}

}  // namespace

Schedule::Schedule(Shape shape)
    : shape_(std::move(shape)),
      row_(row_of(shape_.pattern)),
      encoding_(memory::encoding_of_contributions(shape_.format)),
      result_encoding_(memory::encoding_of_result(shape_.format)) {
  PCCL_ASSERT(shape_.world >= 1 && shape_.rank < shape_.world && shape_.element_bytes >= 1);
  PCCL_ASSERT(!is_listed() || shape_.world == 2);
  PCCL_ASSERT(row_.travel != Travel::kParts || shape_.count == 0);
  PCCL_ASSERT(!by_owners() || shape_.shares.size() == shape_.world);
  PCCL_ASSERT(!shape_.format.quantizes() || by_owners() || overtakes() || is_sliced());
  PCCL_ASSERT(!shape_.leg || (by_owners() && shape_.leg->from != shape_.leg->to &&
                              (shape_.leg->from == shape_.rank || shape_.leg->to == shape_.rank)));
  lay_out();
  cut();
  if (shape_.world == 1 || slices_ == 0 || is_one_shot()) return;
  const uint32_t once_around = shape_.world - 1;
  if (by_owners()) {
    rounds_ = (contributes() ? 1 : 0) + (returns() ? 1 : 0);
    round_ = contributes() ? 0 : 1;
  } else {
    rounds_ = in_ring() ? reducing_rounds() + (row_.gathers ? once_around : 0) : 1;
  }
  choose_depth();
}

void Schedule::choose_depth() {
  if (overtakes()) {
    depth_ = static_cast<uint32_t>(std::min(kEagerGrantBytes / chunk_bytes_, step_count()));
  } else if (shape_.wan && (by_owners() || slots_per_step() > 0)) {
    standard_depth_ = depth_with(kScratchBytesWan);
    depth_ = depth_with(std::max(kScratchBytesWan, shape_.scratch_bytes));
    return;
  }
  standard_depth_ = depth_;
}

// In the direct pattern, the same for all legs.
uint32_t Schedule::depth_with(uint64_t scratch) const {
  const uint64_t step_bytes =
      uint64_t{by_owners() ? slots_per_slice() : slots_per_step()} * slot_bytes_;
  const uint64_t most = by_owners() ? slices_ + 1 : step_count();
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::min(scratch / step_bytes, most), kDepth,
                                                    kDepthMax * scratch / kScratchBytesWan));
}

// Sets the sizes and offsets of the blocks.
void Schedule::lay_out() {
  const uint64_t bytes = shape_.count * shape_.element_bytes;
  switch (row_.layout) {
    case Layout::kSliced:
      total_bytes_ = bytes;
      block_stride_ = divide_up(shape_.count, shape_.world) * shape_.element_bytes;
      break;
    case Layout::kShared: {
      const uint64_t largest = *std::max_element(shape_.shares.begin(), shape_.shares.end());
      total_bytes_ = bytes;
      block_stride_ = divide_up(bytes * largest, protocol::kSharesTotal);
      break;
    }
    case Layout::kPerRank:
      block_stride_ = bytes;
      total_bytes_ = bytes * shape_.world;
      break;
    case Layout::kWhole: total_bytes_ = block_stride_ = bytes; break;
    case Layout::kListed:
      for (const uint64_t block : shape_.block_bytes) {
        block_offsets_.push_back(total_bytes_);
        total_bytes_ += block;
        block_stride_ = std::max(block_stride_, block);
      }
      break;
  }
}

// Cuts the blocks into chunks. On wan paths the size of a chunk on the wire matters, elsewhere its
// size in memory.
void Schedule::cut() {
  const uint64_t width = shape_.element_bytes;
  const uint64_t smaller = encoding_ && shape_.wan ? 8 * width / encoding_->bits : 1;
  grain_bytes_ = static_cast<uint32_t>(
      encoding_ ? round_up(memory::grain_of(shape_.format) * width, kAlignment) : kAlignment);
  const uint64_t slots = by_owners() ? slots_per_slice() : slots_of_rounds();
  const uint64_t chosen =
      smaller * choose_chunk_bytes(row_, shape_, slots, block_stride_ / smaller);
  chunk_bytes_ = static_cast<uint32_t>(round_up(chosen, grain_bytes_));
  if (recodes() || (encoding_ && by_owners())) {
    const uint64_t grains = kScratchBytesMax / (kDepth * slots) / slot_bytes_of(grain_bytes_);
    chunk_bytes_ = std::min(chunk_bytes_, static_cast<uint32_t>(grains) * grain_bytes_);
  }
  if (is_listed()) {
    for (const uint64_t bytes : shape_.block_bytes) {
      first_steps_.push_back(slices_);
      slices_ += std::max(divide_up(bytes, chunk_bytes_), uint64_t{1});
    }
    first_steps_.push_back(slices_);
  } else if (is_sliced()) {
    const uint64_t slice_bytes = uint64_t{shape_.world} * chunk_bytes_;
    slices_ = divide_up(total_bytes_, slice_bytes);
    const uint64_t last = total_bytes_ - (std::max(slices_, uint64_t{1}) - 1) * slice_bytes;
    last_chunk_bytes_ =
        static_cast<uint32_t>(round_up(divide_up(last, shape_.world), grain_bytes_));
  } else if (is_shared()) {
    cut_ = Cut(total_bytes_, shape_.shares, chunk_bytes_, grain_bytes_);
    chunk_bytes_ = cut_.block_bytes_max();
    slices_ = cut_.slices();
  } else {
    slices_ = divide_up(block_stride_, chunk_bytes_);
  }
  slot_bytes_ = slot_bytes_of(chunk_bytes_);
}

uint32_t Schedule::slot_bytes_of(uint32_t chunk_bytes) const {
  const uint32_t most =
      std::max(memory::wire_bytes(encoding_, chunk_bytes, shape_.element_bytes),
               memory::wire_bytes(result_encoding_, chunk_bytes, shape_.element_bytes));
  return static_cast<uint32_t>(round_up(most, kAlignment));
}

// How the chunk travels.
void Schedule::encode(Chunk& chunk, const memory::Encoding& encoding) const {
  chunk.encoding = encoding;
  chunk.wire_bytes = memory::wire_bytes(encoding, chunk.bytes, shape_.element_bytes);
}

uint32_t Schedule::reducing_rounds() const {
  return in_ring() && row_.reduces ? shape_.world - 1 : 0;
}

uint32_t Schedule::block_count() const {
  PCCL_DCHECK(!is_sliced() && !is_shared() && !is_one_shot());
  if (row_.layout == Layout::kPerRank) return shape_.world;
  return is_listed() ? static_cast<uint32_t>(shape_.block_bytes.size()) : 1;
}

uint64_t Schedule::block_bytes(uint32_t block) const {
  PCCL_DCHECK(block < block_count());
  return is_listed() ? shape_.block_bytes[block] : block_stride_;
}

uint64_t Schedule::block_offset(uint32_t block) const {
  PCCL_DCHECK(block < block_count());
  return is_listed() ? block_offsets_[block] : block * block_stride_;
}

uint32_t Schedule::chunk_bytes() const { return chunk_bytes_; }

uint64_t Schedule::step_count() const { return rounds_ == 0 ? 0 : slices_ + rounds_ - 1; }

bool Schedule::sends() const {
  if (rounds_ == 0) return false;
  if (shape_.leg) return shape_.leg->from == shape_.rank;
  return in_ring() || overtakes() || shape_.rank + 1 < shape_.world;
}

bool Schedule::receives() const {
  if (rounds_ == 0) return false;
  if (shape_.leg) return shape_.leg->to == shape_.rank;
  return in_ring() || overtakes() || shape_.rank > 0;
}

// Step t contains the rounds q that have a slice t - q, in rising order. The position of a cursor
// is its round.
void Schedule::advance(Cursor& cursor) const {
  PCCL_DCHECK(!cursor.at_end);
  if (++cursor.position <= std::min(cursor.step, rounds_ - 1)) return;
  ++cursor.step;
  cursor.at_end = cursor.step == step_count();
  cursor.position = static_cast<uint32_t>(cursor.step < slices_ ? 0 : cursor.step - slices_ + 1);
}

uint64_t Schedule::id(const Cursor& cursor) const {
  PCCL_DCHECK(!cursor.at_end);
  return (cursor.step - cursor.position) * rounds_ + cursor.position;
}

// Within one step the earlier round goes first: it belongs to the later slice.
uint64_t Schedule::order(uint64_t id) const {
  const uint64_t slice = id / rounds_, round = id % rounds_;
  const bool all_at_once = standard_depth_ >= step_count();
  return all_at_once ? round * slices_ + slice : (slice + round) * rounds_ + round;
}

Schedule::Cursor Schedule::cursor_at(uint64_t id) const {
  const uint64_t round = id % rounds_;
  return {id / rounds_ + round, static_cast<uint32_t>(round), false};
}

std::optional<uint64_t> Schedule::find(uint16_t round, uint32_t block, uint32_t slice) const {
  if (round < round_ || round - round_ >= rounds_) return std::nullopt;
  uint64_t first = 0, end = slices_;  // range of slices
  if (is_listed()) {
    if (block >= shape_.block_bytes.size()) return std::nullopt;
    first = first_steps_[block];
    end = first_steps_[block + 1];
  }
  if (slice >= end - first) return std::nullopt;
  const uint64_t id = (first + slice) * rounds_ + round - round_;
  return chunk_received(id).block == block ? std::optional(id) : std::nullopt;
}

Schedule::Sources Schedule::sources() const {
  if (in_ring()) return {chunk_count(), std::max(rounds_, uint64_t{1})};
  if (by_owners())
    return {sends() && contributes() ? chunk_count() : 0, std::max<uint64_t>(rounds_, 1)};
  return {overtakes() || shape_.rank == 0 ? chunk_count() : 0, 1};
}

std::optional<uint64_t> Schedule::unlocked_by(uint64_t received) const {
  if (!sends() || by_owners() || overtakes()) return std::nullopt;
  if (!in_ring()) return received;
  return (received + 1) % rounds_ == 0 ? std::nullopt : std::optional(received + 1);
}

// REQUIRES: not kRing. Each chunk is one slice.
uint32_t Schedule::block_of(uint64_t id) const {
  if (!is_listed()) return 0;
  const auto after = std::upper_bound(first_steps_.begin(), first_steps_.end(), id);
  return static_cast<uint32_t>(after - first_steps_.begin() - 1);
}

Chunk Schedule::chunk(uint64_t id, uint32_t block) const {
  PCCL_DCHECK(id < chunk_count());
  Chunk chunk;
  chunk.id = id;
  chunk.round = static_cast<uint16_t>(id % rounds_);
  chunk.step = id / rounds_ + chunk.round;
  chunk.block = block;
  const uint64_t before = is_listed() ? first_steps_[block] : 0;
  chunk.slice = static_cast<uint32_t>(id / rounds_ - before);
  uint64_t start = 0, end = 0, width = chunk_bytes_;  // of the chunk; `end` of its row
  if (is_sliced()) {
    if (chunk.slice + 1 == slices_) width = last_chunk_bytes_;
    start = uint64_t{chunk.slice} * shape_.world * chunk_bytes_ + block * width;
    end = total_bytes_;
  } else {
    start = block_offset(block) + uint64_t{chunk.slice} * chunk_bytes_;
    end = block_offset(block) + block_bytes(block);
  }
  chunk.offset = std::min(start, end);
  chunk.bytes = static_cast<uint32_t>(std::min(width, end - chunk.offset));
  encode(chunk, in_ring() && chunk.round >= reducing_rounds() ? result_encoding_ : encoding_);
  return chunk;
}

Chunk Schedule::chunk_sent_for(uint64_t id) const {
  if (by_owners()) return chunk_of_leg(id);
  if (!in_ring()) return chunk(id, block_of(id));
  const auto round = static_cast<uint32_t>(id % rounds_);
  const uint32_t first = shape_.rank + shape_.world - (scatters() ? 1 : 0);
  return chunk(id, (first + shape_.world - round % shape_.world) % shape_.world);
}

Chunk Schedule::chunk_received(uint64_t id) const {
  if (by_owners()) return chunk_of_leg(id);
  if (!in_ring()) return chunk(id, block_of(id));
  const auto round = static_cast<uint32_t>(id % rounds_);
  const uint32_t first = shape_.rank + shape_.world - (scatters() ? 2 : 1);
  return chunk(id, (first + shape_.world - round % shape_.world) % shape_.world);
}

Action Schedule::action(const Chunk& received) const {
  if (by_owners()) return received.round == 0 ? Action::kGather : Action::kStore;
  if (overtakes()) return Action::kFinish;
  if (adds_on()) return shape_.rank + 1 < shape_.world ? Action::kAccumulate : Action::kFinish;
  if (received.round >= reducing_rounds()) return Action::kStore;
  return received.round + 1u < reducing_rounds() ? Action::kAccumulate : Action::kFinish;
}

bool Schedule::from_scratch(const Chunk& sent) const {
  if (adds_on()) return shape_.rank > 0;
  return sent.round >= 1 && (recodes() || sent.round < reducing_rounds());
}

uint32_t Schedule::slot_count() const {
  if (is_one_shot()) return total_bytes_ > 0 ? shape_.world : 0;
  if (by_owners()) return owns() ? slots_of_slices() * slots_per_slice() : 0;
  const bool accumulates = adds_on() ? sends() && receives() : reducing_rounds() > 0;
  return accumulates && rounds_ > 0 ? depth_ * slots_per_step() : 0;
}

// Received rounds whose chunks wait in a slot: all but the last in codes, otherwise those that
// accumulate.
uint32_t Schedule::slots_of_rounds() const {
  const uint32_t around = shape_.world - 1;
  return recodes() ? 2 * around - 1 : around - 1;
}

// These rounds of one step are consecutive, and at most as many as there are slices. Modulo that
// number they never share a slot.
uint32_t Schedule::slots_per_step() const {
  if (in_chain()) return 1;
  return static_cast<uint32_t>(std::min<uint64_t>(slots_of_rounds(), slices_));
}

uint32_t Schedule::slot(const Chunk& received) const {
  PCCL_DCHECK(action(received) == Action::kAccumulate || passes_codes(received));
  return static_cast<uint32_t>(received.step % depth_) * slots_per_step() +
         received.round % slots_per_step();
}

uint32_t Schedule::slot_sent(const Chunk& sent) const {
  PCCL_DCHECK(from_scratch(sent));
  if (adds_on()) return static_cast<uint32_t>(sent.step % depth_);  // where it has landed
  return static_cast<uint32_t>((sent.step - 1) % depth_) * slots_per_step() +
         (sent.round - 1) % slots_per_step();
}

// A chunk that arrives in step t leaves in step t + 1; its slot is reused in step t + depth.
uint64_t Schedule::credit(const Cursor& sent, const Cursor& received) const {
  if (sent.at_end) return step_count();
  if (overtakes() && !shape_.restored) {  // a late chunk would use the room of a later one
    const uint64_t both = received.at_end ? sent.step : std::min(sent.step, received.step);
    return std::min(step_count(), both + depth_);
  }
  if (slot_count() == 0) return step_count();
  if (adds_on()) return std::min(step_count(), sent.step + depth_);
  return std::min(step_count(), std::max<uint64_t>(sent.step, 1) - 1 + depth_);
}

Schedule::Eager Schedule::head(uint64_t room) const {
  if (!shape_.wan || !row_.eager || !sends()) return {};
  uint64_t granted = overtakes()   ? depth_  // for both values of `restored`
                     : by_owners() ? credit_of_owner(0)
                                   : credit({}, {});
  if (standard_depth_ < depth_) granted = std::min<uint64_t>(granted, standard_depth_);
  const uint64_t most = std::min(granted, step_count());
  Eager head;
  while (head.steps < most) {
    // Results are no eager data: the other end has posted, or there would be none.
    const uint64_t chunks = by_owners() ? 1 : std::min({head.steps + 1, rounds_, slices_});
    const uint64_t cost = head.cost + chunks * eager_cost(slot_bytes_);
    if (cost > room) break;
    head = {head.steps + 1, cost};
  }
  return head;
}

// The last round of slice s arrives at the end of step s + rounds - 1.
uint64_t Schedule::finished(const Cursor& received) const {
  PCCL_DCHECK(is_sliced() || overtakes() || block_offsets_.size() == 1);
  if (received.at_end) return shape_.count;
  if (is_listed()) return received.step * chunk_bytes_ / shape_.element_bytes;
  const uint64_t slices = std::max(received.step + 1, rounds_) - rounds_;
  const uint64_t blocks = overtakes() ? 1 : shape_.world;  // of a slice
  return slices * blocks * chunk_bytes_ / shape_.element_bytes;
}

void Schedule::check() const {
  PCCL_ASSERT(chunk_bytes_ >= 1 && depth_ >= 1);
  PCCL_ASSERT(is_one_shot() || chunk_bytes_ <= protocol::kChunkBytesMax);
  PCCL_ASSERT(last_chunk_bytes_ <= chunk_bytes_ || !is_sliced());
  if (is_listed()) {
    PCCL_ASSERT(block_offsets_.size() == shape_.block_bytes.size());
    PCCL_ASSERT(first_steps_.size() == block_offsets_.size() + 1 && first_steps_.back() == slices_);
  }
  PCCL_ASSERT(rounds_ == 0 || shape_.world > 1);
  if (!is_sliced() || rounds_ == 0) return;
  PCCL_ASSERT(slices_ * shape_.world * chunk_bytes_ >= total_bytes_);
  PCCL_ASSERT((slices_ - 1) * shape_.world * chunk_bytes_ < total_bytes_);
}

}  // namespace pccl::ring
