#include "csrc/ring/schedule.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/eager.h"

namespace pccl::ring {

// Sets the encoding of the chunk, and its size on the wire.
void Schedule::encode(Chunk& chunk, const memory::Encoding& encoding) const {
  chunk.encoding = encoding;
  chunk.wire_bytes = memory::wire_bytes(encoding, chunk.bytes, sizes_.shape.element_bytes);
}

bool Schedule::sends() const {
  if (sizes_.rounds == 0) return false;
  if (sizes_.shape.leg) return sizes_.shape.leg->from == sizes_.shape.rank;
  return sizes_.row.in_ring() || sizes_.row.overtakes() ||
         sizes_.shape.rank + 1 < sizes_.shape.world;
}

bool Schedule::receives() const {
  if (sizes_.rounds == 0) return false;
  if (sizes_.shape.leg) return sizes_.shape.leg->to == sizes_.shape.rank;
  return sizes_.row.in_ring() || sizes_.row.overtakes() || sizes_.shape.rank > 0;
}

// Step t contains the rounds q that have a slice t - q, in rising order. The position of a cursor
// is its round.
void Schedule::advance(Cursor& cursor) const {
  PCCL_DCHECK(!cursor.at_end);
  if (++cursor.position <= std::min(cursor.step, sizes_.rounds - 1)) return;
  ++cursor.step;
  cursor.at_end = cursor.step == sizes_.step_count();
  cursor.position =
      static_cast<uint32_t>(cursor.step < sizes_.slices ? 0 : cursor.step - sizes_.slices + 1);
}

uint64_t Schedule::id(const Cursor& cursor) const {
  PCCL_DCHECK(!cursor.at_end);
  return (cursor.step - cursor.position) * sizes_.rounds + cursor.position;
}

// Within one step the earlier round goes first: it belongs to the later slice.
uint64_t Schedule::order(uint64_t id) const {
  const uint64_t slice = id / sizes_.rounds, round = id % sizes_.rounds;
  const bool all_at_once = sizes_.standard_depth >= sizes_.step_count();
  return all_at_once ? round * sizes_.slices + slice : (slice + round) * sizes_.rounds + round;
}

Schedule::Cursor Schedule::cursor_at(uint64_t id) const {
  const uint64_t round = id % sizes_.rounds;
  return {id / sizes_.rounds + round, static_cast<uint32_t>(round), false};
}

std::optional<uint64_t> Schedule::find(uint16_t round, uint32_t block, uint32_t slice) const {
  if (round < sizes_.first_round || round - sizes_.first_round >= sizes_.rounds)
    return std::nullopt;
  uint64_t first = 0, end = sizes_.slices;  // range of slices
  if (sizes_.row.is_listed()) {
    if (block >= sizes_.shape.block_bytes.size()) return std::nullopt;
    first = sizes_.first_steps[block];
    end = sizes_.first_steps[block + 1];
  }
  if (slice >= end - first) return std::nullopt;
  const uint64_t id = (first + slice) * sizes_.rounds + round - sizes_.first_round;
  return chunk_received(id).block == block ? std::optional(id) : std::nullopt;
}

Schedule::Sources Schedule::sources() const {
  if (sizes_.row.in_ring()) return {chunk_count(), std::max(sizes_.rounds, uint64_t{1})};
  if (sizes_.row.in_legs())
    return {sends() && sizes_.shape.contributes() ? chunk_count() : 0,
            std::max<uint64_t>(sizes_.rounds, 1)};
  return {sizes_.row.overtakes() || sizes_.shape.rank == 0 ? chunk_count() : 0, 1};
}

std::optional<uint64_t> Schedule::unlocked_by(uint64_t received) const {
  if (!sends() || sizes_.row.in_legs() || sizes_.row.overtakes()) return std::nullopt;
  if (!sizes_.row.in_ring()) return received;
  return (received + 1) % sizes_.rounds == 0 ? std::nullopt : std::optional(received + 1);
}

// REQUIRES: not kRing. Each chunk is one slice.
uint32_t Schedule::block_of(uint64_t id) const {
  if (!sizes_.row.is_listed()) return 0;
  const auto after = std::upper_bound(sizes_.first_steps.begin(), sizes_.first_steps.end(), id);
  return static_cast<uint32_t>(after - sizes_.first_steps.begin() - 1);
}

Chunk Schedule::chunk(uint64_t id, uint32_t block) const {
  PCCL_DCHECK(id < chunk_count());
  Chunk chunk;
  chunk.id = id;
  chunk.round = static_cast<uint16_t>(id % sizes_.rounds);
  chunk.step = id / sizes_.rounds + chunk.round;
  chunk.block = block;
  const uint64_t before = sizes_.row.is_listed() ? sizes_.first_steps[block] : 0;
  chunk.slice = static_cast<uint32_t>(id / sizes_.rounds - before);
  // `start`, `width`: of the chunk. `end`: of the tensor if it is sliced, otherwise of the block.
  uint64_t start = 0, end = 0, width = sizes_.chunk_bytes;
  if (sizes_.row.is_sliced()) {
    if (chunk.slice + 1 == sizes_.slices) width = sizes_.last_chunk_bytes;
    start = uint64_t{chunk.slice} * sizes_.shape.world * sizes_.chunk_bytes + block * width;
    end = sizes_.total_bytes;
  } else {
    start = sizes_.block_offset(block) + uint64_t{chunk.slice} * sizes_.chunk_bytes;
    end = sizes_.block_offset(block) + sizes_.block_bytes(block);
  }
  chunk.offset = std::min(start, end);
  chunk.bytes = static_cast<uint32_t>(std::min(width, end - chunk.offset));
  encode(chunk, sizes_.row.in_ring() && chunk.round >= sizes_.reducing_rounds()
                    ? sizes_.result_encoding
                    : sizes_.encoding);
  return chunk;
}

Chunk Schedule::chunk_sent_for(uint64_t id) const {
  if (sizes_.row.in_legs()) return chunk_of_leg(id);
  if (!sizes_.row.in_ring()) return chunk(id, block_of(id));
  const auto round = static_cast<uint32_t>(id % sizes_.rounds);
  const uint32_t first = sizes_.shape.rank + sizes_.shape.world - (sizes_.row.scatters() ? 1 : 0);
  return chunk(id, (first + sizes_.shape.world - round % sizes_.shape.world) % sizes_.shape.world);
}

Chunk Schedule::chunk_received(uint64_t id) const {
  if (sizes_.row.in_legs()) return chunk_of_leg(id);
  if (!sizes_.row.in_ring()) return chunk(id, block_of(id));
  const auto round = static_cast<uint32_t>(id % sizes_.rounds);
  const uint32_t first = sizes_.shape.rank + sizes_.shape.world - (sizes_.row.scatters() ? 2 : 1);
  return chunk(id, (first + sizes_.shape.world - round % sizes_.shape.world) % sizes_.shape.world);
}

Action Schedule::action(const Chunk& received) const {
  if (sizes_.row.in_legs()) return received.round == 0 ? Action::kGather : Action::kStore;
  if (sizes_.row.overtakes()) return Action::kFinish;
  if (sizes_.row.adds_on())
    return sizes_.shape.rank + 1 < sizes_.shape.world ? Action::kAccumulate : Action::kFinish;
  if (received.round >= sizes_.reducing_rounds()) return Action::kStore;
  return received.round + 1u < sizes_.reducing_rounds() ? Action::kAccumulate : Action::kFinish;
}

bool Schedule::from_scratch(const Chunk& sent) const {
  if (sizes_.row.adds_on()) return sizes_.shape.rank > 0;
  return sent.round >= 1 && (sizes_.recodes() || sent.round < sizes_.reducing_rounds());
}

uint32_t Schedule::slot_count() const {
  if (sizes_.row.is_one_shot()) return sizes_.total_bytes > 0 ? sizes_.shape.world : 0;
  if (sizes_.row.by_owners()) return owns() ? slots_of_slices() * sizes_.slots_per_slice() : 0;
  const bool accumulates =
      sizes_.row.adds_on() ? sends() && receives() : sizes_.reducing_rounds() > 0;
  return accumulates && sizes_.rounds > 0 ? sizes_.depth * sizes_.slots_per_step() : 0;
}

uint32_t Schedule::slot(const Chunk& received) const {
  PCCL_DCHECK(action(received) == Action::kAccumulate || passes_codes(received));
  return static_cast<uint32_t>(received.step % sizes_.depth) * sizes_.slots_per_step() +
         received.round % sizes_.slots_per_step();
}

uint32_t Schedule::slot_sent(const Chunk& sent) const {
  PCCL_DCHECK(from_scratch(sent));
  if (sizes_.row.adds_on())
    return static_cast<uint32_t>(sent.step % sizes_.depth);  // where it has landed
  return static_cast<uint32_t>((sent.step - 1) % sizes_.depth) * sizes_.slots_per_step() +
         (sent.round - 1) % sizes_.slots_per_step();
}

// A chunk that arrives in step t leaves in step t + 1; its slot is reused in step t + depth.
uint64_t Schedule::credit(const Cursor& sent, const Cursor& received) const {
  if (sent.at_end) return sizes_.step_count();
  if (sizes_.row.overtakes() &&
      !sizes_.shape.restored) {  // a late chunk would save into the room of a later one
    const uint64_t both = received.at_end ? sent.step : std::min(sent.step, received.step);
    return std::min(sizes_.step_count(), both + sizes_.depth);
  }
  if (slot_count() == 0) return sizes_.step_count();
  if (sizes_.row.adds_on()) return std::min(sizes_.step_count(), sent.step + sizes_.depth);
  return std::min(sizes_.step_count(), std::max<uint64_t>(sent.step, 1) - 1 + sizes_.depth);
}

Schedule::Eager Schedule::head(uint64_t room) const {
  const bool eager = sizes_.row.is_one_shot() || (sizes_.shape.wan && sizes_.row.eager);
  if (!eager || !sends()) return {};
  uint64_t granted = sizes_.row.overtakes() ? sizes_.depth  // for any value of `restored`
                     : sizes_.row.in_legs() ? credit_of_owner(0)
                                            : credit({}, {});
  if (sizes_.standard_depth < sizes_.depth)
    granted = std::min<uint64_t>(granted, sizes_.standard_depth);
  const uint64_t most = std::min(granted, sizes_.step_count());
  Eager head;
  while (head.steps < most) {
    // Results are not eager data: they exist only after the other end has posted the operation.
    const uint64_t chunks =
        sizes_.row.by_owners() ? 1 : std::min({head.steps + 1, sizes_.rounds, sizes_.slices});
    const uint64_t cost = head.cost + chunks * eager_cost(sizes_.slot_bytes);
    if (cost > room) break;
    head = {head.steps + 1, cost};
  }
  return head;
}

// The last round of slice s arrives at the end of step s + rounds - 1.
uint64_t Schedule::finished(const Cursor& received) const {
  PCCL_DCHECK(sizes_.row.is_sliced() || sizes_.row.overtakes() || sizes_.block_offsets.size() == 1);
  if (received.at_end) return sizes_.shape.count;
  if (sizes_.row.is_listed())
    return received.step * sizes_.chunk_bytes / sizes_.shape.element_bytes;
  const uint64_t slices = std::max(received.step + 1, sizes_.rounds) - sizes_.rounds;
  const uint64_t blocks = sizes_.row.overtakes() ? 1 : sizes_.shape.world;  // of a slice
  return slices * blocks * sizes_.chunk_bytes / sizes_.shape.element_bytes;
}

// ---- Legs ----

Chunk Schedule::chunk_of_leg(uint64_t id) const {
  PCCL_DCHECK(sizes_.shape.leg && id < chunk_count());
  if (sizes_.row.is_one_shot()) {
    Chunk part;
    part.block = sizes_.shape.leg->to;
    part.slot = sizes_.shape.leg->from;
    part.bytes = part.wire_bytes = static_cast<uint32_t>(sizes_.total_bytes);
    return part;
  }
  const uint64_t slice = id / sizes_.rounds;
  const uint64_t round = sizes_.first_round + id % sizes_.rounds;
  const bool contribution = round == 0;
  Chunk chunk = written(slice * sizes_.shape.world +
                        (contribution ? sizes_.shape.leg->to : sizes_.shape.leg->from));
  chunk.id = id;
  chunk.step = slice + id % sizes_.rounds;
  chunk.round = static_cast<uint16_t>(round);
  encode(chunk, contribution ? sizes_.encoding : sizes_.result_encoding);
  if (contribution && receives()) chunk.slot = slot_from(sizes_.shape.leg->from, slice);
  return chunk;
}

Chunk Schedule::written(uint64_t index) const {
  if (!sizes_.row.by_owners()) return chunk_received(index);
  PCCL_DCHECK(index < written_count());
  const auto rank = static_cast<uint32_t>(index % sizes_.shape.world);
  const Cut::Block cut = sizes_.cut.block(index / sizes_.shape.world, rank);
  Chunk chunk;
  chunk.id = index;
  chunk.slice = static_cast<uint32_t>(index / sizes_.shape.world);
  chunk.block = rank;
  chunk.offset = cut.offset;
  chunk.bytes = cut.bytes;
  encode(chunk, sizes_.result_encoding);
  return chunk;
}

uint32_t Schedule::slots_of_slices() const {
  return static_cast<uint32_t>(std::min<uint64_t>(sizes_.depth, sizes_.slices));
}

// A slot is used again after depth() slices. Credit ensures that its sum is computed by then.
uint32_t Schedule::slot_from(uint32_t rank, uint64_t slice) const {
  PCCL_DCHECK(owns() && rank != sizes_.shape.rank);
  const uint32_t before = rank < sizes_.shape.rank ? rank : rank - 1;
  return static_cast<uint32_t>(slice % sizes_.depth) * (sizes_.shape.world - 1) + before;
}

// A slot is used again after depth() slices. Credit ensures that the earlier result has left to all
// others by then.
uint32_t Schedule::slot_of_result(uint64_t slice) const {
  PCCL_DCHECK(holds_results());
  return slots_of_slices() * (sizes_.shape.world - 1) + static_cast<uint32_t>(slice % sizes_.depth);
}

uint64_t Schedule::credit_of_owner(uint64_t free) const {
  PCCL_DCHECK(sizes_.shape.leg);
  return sizes_.shape.contributes() ? std::min(sizes_.step_count(), free + sizes_.depth)
                                    : sizes_.step_count();
}

uint64_t Schedule::slices_here(const Cursor& received) const {
  PCCL_DCHECK(sizes_.shape.leg);
  return received.at_end ? sizes_.slices
                         : std::max(received.step + 1, sizes_.rounds) - sizes_.rounds;
}

uint64_t Schedule::elements_in(uint64_t slices) const {
  PCCL_DCHECK(sizes_.row.by_owners() && slices <= sizes_.slices);
  return std::min(slices * sizes_.cut.slice_bytes(), sizes_.total_bytes) /
         sizes_.shape.element_bytes;
}

}  // namespace pccl::ring
