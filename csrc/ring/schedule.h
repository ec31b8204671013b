// Schedule: which chunks of a tensor a rank sends and receives, and their best order.
// It is a plain value: pure arithmetic over (pattern, rank, world, sizes). Every member computes
// the same schedule from the same operation, so the schedule itself is never sent. Operation and
// OpBuffers each hold one; it never changes after construction.
//
// An all-reduce cuts the tensor into slices, and each slice into `world` blocks of one chunk each.
// Every slice makes 2(N-1) rounds: N-1 of reduce-scatter, then N-1 of all-gather. In step t a rank
// sends round q of slice t-q, for every q (software pipelining; the ring itself: PCCL report,
// section 4.1). Consequences: each chunk leaves one step after it arrived, while it is in cache;
// scratch does not grow with the tensor; results appear from the start of the tensor. At N = 3,
// three slices, rounds q = 0..3:
//
//     step   0      1      2      3      4      5
//     sends  s0q0   s1q0   s2q0   s2q1   s2q2   s2q3
//                   s0q1   s1q1   s1q2   s1q3
//                          s0q2   s0q3
//
// This order keeps few chunks in flight at a time. When the members are on wan paths and the tensor
// is small, all chunks may be in flight at once. The rounds then go one after another, and a lane
// first carries the chunk that has made the fewest rounds. Each chunk must make all rounds, and the
// operation ends when the last chunk has made them.
//
// A quantized all-reduce around the ring has the same rounds. Each member adds the decoded values
// of its own codes, and encodes the partial sum again. The codes of the result travel unchanged. So
// all data that a rank passes on waits in scratch, as codes.
//
// The direct pattern has the same slices and steps with two rounds: contributions to an owner, then
// the results. The schedule of the whole operation has no chunks; it only cuts the tensor, and
// gives each contribution its slot. Each leg (Shape::leg) has a schedule of its own, with the
// chunks that travel on it. If one of the two ranks of a leg owns nothing, the leg has only one of
// the two rounds. A leg of a one-shot operation has one chunk. patterns.h lists the patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "csrc/ring/chunk.h"
#include "csrc/ring/sizes.h"

namespace pccl::ring {

class Schedule {
 public:
  static constexpr uint32_t kDepth = Sizes::kDepth;

  explicit Schedule(Shape shape) : sizes_(std::move(shape)) {}
  const Shape& shape() const { return sizes_.shape; }
  const PatternRow& row() const { return sizes_.row; }

  // See Sizes.
  uint64_t total_bytes() const { return sizes_.total_bytes; }
  uint32_t block_count() const { return sizes_.block_count(); }
  uint64_t block_bytes(uint32_t block) const { return sizes_.block_bytes(block); }
  uint64_t block_offset(uint32_t block) const { return sizes_.block_offset(block); }
  uint32_t chunk_bytes() const { return sizes_.chunk_bytes; }
  // The largest number of bytes of a chunk on the wire. It is also the size of a slot.
  uint32_t slot_bytes() const { return sizes_.slot_bytes; }
  uint64_t step_count() const { return sizes_.step_count(); }
  uint32_t depth() const { return sizes_.depth; }  // how far upstream may run ahead, in steps

  // sends() is false if nothing leaves this rank (last rank of a broadcast, destination of a
  // transfer, world 1, no elements). receives() is false if no chunk arrives at this rank.
  bool sends() const;
  bool receives() const;

  // Priority of a chunk: the smallest value is sent first. With several lanes, chunks arrive in a
  // different order.
  uint64_t order(uint64_t id) const;
  // Chunks step by step, as credit counts them. A cursor points at a chunk or at the end.
  struct Cursor {
    uint64_t step = 0;
    uint32_t position = 0;
    bool at_end = false;
  };
  uint64_t chunk_count() const { return sizes_.rounds * sizes_.slices; }
  Cursor first() const { return {0, 0, chunk_count() == 0}; }
  void advance(Cursor& cursor) const;
  uint64_t id(const Cursor& cursor) const;
  Cursor cursor_at(uint64_t id) const;
  Chunk chunk_sent_for(uint64_t id) const;
  Chunk chunk_received(uint64_t id) const;
  // The id of the chunk with this round, block and slice, if the schedule has it.
  std::optional<uint64_t> find(uint16_t round, uint32_t block, uint32_t slice) const;

  // Chunk ids that may be sent without any received data: 0, stride, 2 x stride... below the end.
  struct Sources {
    uint64_t end = 0;
    uint64_t stride = 1;
  };
  Sources sources() const;
  // The chunk that may be sent once `received` is here, if any.
  std::optional<uint64_t> unlocked_by(uint64_t received) const;

  // action(): the action of a received chunk. from_scratch(): whether a sent chunk comes from
  // scratch.
  Action action(const Chunk& received) const;
  bool from_scratch(const Chunk& sent) const;
  // Whether this rank passes on the codes of a received chunk, or of the sum with it. They wait in
  // scratch until they are sent. True around a ring in codes, except for the last chunk that a rank
  // receives of a slice.
  bool passes_codes(const Chunk& received) const {
    return sizes_.recodes() && received.round + 1u < sizes_.rounds;
  }
  // Whether a sent chunk is this rank's own contribution to a reduction.
  bool is_contribution(const Chunk& sent) const {
    return row().reduces && (row().adds_on() ? shape().rank == 0 : sent.round == 0);
  }
  // Whether the results of this owner wait in scratch until all others have them: codes are sent,
  // and the tensor has the decoded values.
  bool holds_results() const { return owns() && sizes_.result_encoding; }
  // The number of contributions that a received chunk holds, if it is reduced.
  int held(const Chunk& received) const {
    return row().adds_on() ? static_cast<int>(shape().rank) : received.round + 1;
  }
  // Scratch: slots of slot_bytes each. slot(received) is where a kAccumulate chunk lands; it is
  // sent from there one round later. slot_sent(sent) is the same slot, computed from the sent
  // chunk. A kFinish chunk lands in scratch of its lane. If passes_codes(received), the slot has
  // the codes that will be sent. In a one-shot operation each member has a slot, numbered by its
  // rank. In a direct all-reduce each other member has depth() slots, or one per slice if there are
  // fewer slices. Held results of this member have the same number of slots.
  uint32_t slot_count() const;
  uint32_t slot(const Chunk& received) const;
  uint32_t slot_sent(const Chunk& sent) const;

  // The chunks that are written to the memory of the operation, in an order that depends on the
  // shape alone. They are the received chunks, by their ids, in all patterns but the direct one.
  uint64_t written_count() const {
    return row().by_owners() ? slices() * shape().world : chunk_count();
  }
  Chunk written(uint64_t index) const;
  uint64_t index_written(const Chunk& chunk) const {
    return row().by_owners() ? uint64_t{chunk.slice} * shape().world + chunk.block : chunk.id;
  }

  // The credit to grant: the number of steps, from the start, that upstream may send. All chunks
  // before `sent` have left this rank, and all chunks before `received` have arrived. REQUIRES: no
  // leg.
  uint64_t credit(const Cursor& sent, const Cursor& received) const;

  // ---- Legs ----
  uint64_t slices() const { return sizes_.slices; }
  bool owns() const {
    return row().by_owners() && shape().world > 1 && shape().shares[shape().rank] > 0;
  }
  // The id of the chunk of a leg that carries results. REQUIRES: Shape::returns().
  uint64_t result_id(uint64_t slice) const { return (slice + 1) * sizes_.rounds - 1; }
  // The slot of another rank's contribution to this slice. REQUIRES: owns().
  uint32_t slot_from(uint32_t rank, uint64_t slice) const;
  // The slot of this member's result in this slice. REQUIRES: holds_results().
  uint32_t slot_of_result(uint64_t slice) const;
  // The credit to grant on a leg. The slots of the first `free` slices can be used again at the
  // receiving end.
  uint64_t credit_of_owner(uint64_t free) const;
  // The number of slices, from the start, whose chunks on the leg have arrived in all rounds.
  uint64_t slices_here(const Cursor& received) const;
  // Number of elements in the first `slices` slices.
  uint64_t elements_in(uint64_t slices) const;
  // Eager data: the number of steps that may leave before downstream has granted credit, and their
  // cost in bytes. Downstream has room for these steps from the beginning. Their cost is at most
  // `room`; it counts until downstream has posted the operation (eager.h). There are no such steps
  // for a transfer, and on local paths unless the operation is one-shot.
  struct Eager {
    uint64_t steps = 0, cost = 0;
  };
  Eager head(uint64_t room) const;
  // Number of elements, from the start of the tensor, that are final here. All chunks before
  // `received` have arrived. REQUIRES: kAllReduce, kPairwise, or kTransfer of one block; for
  // kDirect see elements_in().
  uint64_t finished(const Cursor& received) const;
  void check() const { sizes_.check(); }

 private:
  uint32_t block_of(uint64_t id) const;
  Chunk chunk(uint64_t id, uint32_t block) const;
  Chunk chunk_of_leg(uint64_t id) const;
  void encode(Chunk& chunk, const memory::Encoding& encoding) const;
  uint32_t slots_of_slices() const;

  Sizes sizes_;
};

}  // namespace pccl::ring
