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
// first carries the chunk that has made the fewest rounds: each chunk makes all rounds, and the
// last one to finish ends the operation.
//
// A quantized all-reduce around the ring has the same rounds. Each member adds the decoded values
// of its own codes, and encodes the partial sum again. The codes of the result travel unchanged. So
// all data that a rank passes on waits in scratch, as codes.
//
// The direct pattern has the same slices and steps with two rounds: contributions to an owner, then
// the results. Its own schedule has no chunks; it only cuts the tensor, and gives each contribution
// its slot. Each leg (Shape::leg) has a schedule for the chunks that take it. If one of its two
// ranks owns nothing, the leg has one of the rounds. patterns.h lists the patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/ring/chunk.h"
#include "csrc/ring/cut.h"
#include "csrc/ring/shape.h"

namespace pccl::ring {

class Schedule {
 public:
  static constexpr uint32_t kDepth = 4;  // depth() of a ring on local paths

  explicit Schedule(Shape shape);
  const Shape& shape() const { return shape_; }
  // Its bytes travel as contributions (one_shot.h): it has no chunks.
  bool is_one_shot() const { return row_.travel == Travel::kContributions; }

  // All blocks, laid end to end. REQUIRES for the last three: not kSliced and not kShared, whose
  // tensor is in one piece.
  uint64_t total_bytes() const { return total_bytes_; }
  uint32_t block_count() const;
  uint64_t block_bytes(uint32_t block) const;
  uint64_t block_offset(uint32_t block) const;
  uint32_t chunk_bytes() const;
  // The maximum bytes of a chunk on the wire, which are also the bytes of a slot.
  uint32_t slot_bytes() const { return slot_bytes_; }
  uint64_t step_count() const;
  uint32_t depth() const { return depth_; }  // steps of scratch: how far upstream may run ahead

  // sends() is false if nothing leaves this rank (last rank of a broadcast, destination of a
  // transfer, world 1, no elements). receives() does the same for arriving chunks.
  bool sends() const;
  bool receives() const;

  // Priority of a chunk: the smallest value is sent first. With several lanes, chunks arrive in
  // another order.
  uint64_t order(uint64_t id) const;
  // Chunks step by step, as credit counts them. A cursor points at a chunk or at the end.
  struct Cursor {
    uint64_t step = 0;
    uint32_t position = 0;
    bool at_end = false;
  };
  uint64_t chunk_count() const { return rounds_ * slices_; }
  Cursor first() const { return {0, 0, chunk_count() == 0}; }
  void advance(Cursor& cursor) const;
  uint64_t id(const Cursor& cursor) const;
  Cursor cursor_at(uint64_t id) const;
  Chunk chunk_sent_for(uint64_t id) const;
  Chunk chunk_received(uint64_t id) const;
  // The id of the chunk with these marks, if the schedule has it.
  std::optional<uint64_t> find(uint16_t round, uint32_t block, uint32_t slice) const;

  // Chunk ids that may be sent without any received data: 0, stride, 2 x stride... below the end.
  struct Sources {
    uint64_t end = 0;
    uint64_t stride = 1;
  };
  Sources sources() const;
  // The chunk that may be sent once `received` is here, if any.
  std::optional<uint64_t> unlocked_by(uint64_t received) const;

  // The action of a received chunk; whether a sent chunk comes from scratch.
  Action action(const Chunk& received) const;
  bool from_scratch(const Chunk& sent) const;
  // Around a ring, in codes: whether the sum with a received chunk waits in scratch until it is
  // sent. The last chunk that a rank receives of a slice goes no further.
  bool passes_codes(const Chunk& received) const {
    return recodes() && received.round + 1u < rounds_;
  }
  // Whether a sent chunk is this rank's own contribution to a reduction.
  bool is_contribution(const Chunk& sent) const {
    return row_.reduces && (adds_on() ? shape_.rank == 0 : sent.round == 0);
  }
  // kReduceScatter: the result is one block, apart from the tensor. Its chunks are the chunks of
  // this rank's block.
  bool scatters() const { return in_ring() && row_.reduces && !row_.gathers; }
  // Whether the results of this owner wait in scratch until all others have them: codes are sent,
  // and the tensor has the decoded values.
  bool holds_results() const { return owns() && result_encoding_; }
  // Whether a landing chunk may overwrite a chunk that has not been sent yet.
  bool overtakes() const { return row_.travel == Travel::kBothWays; }
  // The number of contributions that a received chunk holds, if it is reduced.
  int held(const Chunk& received) const {
    return adds_on() ? static_cast<int>(shape_.rank) : received.round + 1;
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
  uint64_t written_count() const { return by_owners() ? slices_ * shape_.world : chunk_count(); }
  Chunk written(uint64_t index) const;
  uint64_t index_written(const Chunk& chunk) const {
    return by_owners() ? uint64_t{chunk.slice} * shape_.world + chunk.block : chunk.id;
  }

  // The credit to grant: steps that upstream may have sent. All chunks before `sent` have left this
  // rank, and all chunks before `received` have arrived. REQUIRES: no leg.
  uint64_t credit(const Cursor& sent, const Cursor& received) const;

  // ---- The direct pattern (schedule_direct.cc) ----
  bool by_owners() const { return row_.travel == Travel::kOwners; }
  uint64_t slices() const { return slices_; }
  // Whether a leg has these rounds: its end owns a share, or its start does.
  bool contributes() const { return shape_.leg && shape_.shares[shape_.leg->to] > 0; }
  bool returns() const { return shape_.leg && shape_.shares[shape_.leg->from] > 0; }
  bool owns() const { return by_owners() && shape_.world > 1 && shape_.shares[shape_.rank] > 0; }
  // The id of the chunk of a leg that carries results. REQUIRES: returns().
  uint64_t result_id(uint64_t slice) const { return slice * rounds_ + rounds_ - 1; }
  // The slot of another rank's contribution to this slice. REQUIRES: owns().
  uint32_t slot_from(uint32_t rank, uint64_t slice) const;
  // The slot of this member's result in this slice. REQUIRES: holds_results().
  uint32_t slot_of_result(uint64_t slice) const;
  // The credit to grant on a leg: the slots of the first `free` slices can be used again at its
  // end.
  uint64_t credit_of_owner(uint64_t free) const;
  // Slices of the leg, from the start, that have arrived in all rounds.
  uint64_t slices_here(const Cursor& received) const;
  // Number of elements in the first `slices` slices.
  uint64_t elements_in(uint64_t slices) const;
  // Eager data: the number of steps that may leave before downstream has granted credit, and their
  // cost in bytes. Downstream has room for these steps from the beginning. Their cost, which counts
  // while downstream has not posted the operation, is at most `room` (eager.h). Zero steps on
  // local paths and for a transfer.
  struct Eager {
    uint64_t steps = 0, cost = 0;
  };
  Eager head(uint64_t room) const;
  // Number of elements, from the start of the tensor, that are final here. All chunks before
  // `received` have arrived. REQUIRES: kAllReduce, kPairwise, or kTransfer of one block; for
  // kDirect see elements_in().
  uint64_t finished(const Cursor& received) const;
  void check() const;  // asserts that the sizes agree with each other

 private:
  // Software-pipelined rounds. Otherwise there is one round, with chunks in a row.
  bool in_ring() const { return row_.travel == Travel::kRing; }
  bool is_sliced() const { return row_.layout == Layout::kSliced; }
  bool is_listed() const { return row_.layout == Layout::kListed; }
  bool is_shared() const { return row_.layout == Layout::kShared; }
  bool in_chain() const { return row_.travel == Travel::kChain; }
  bool adds_on() const { return in_chain() && row_.reduces; }  // passing data is reduced on its way
  // Around the ring, with codes in place of elements: kAllReduce.
  bool recodes() const { return in_ring() && encoding_ && shape_.world > 1; }
  uint32_t reducing_rounds() const;  // kRing: they come first, then those that gather
  void lay_out();
  void cut();
  void choose_depth();
  uint32_t depth_with(uint64_t scratch) const;
  uint32_t block_of(uint64_t id) const;
  Chunk chunk(uint64_t id, uint32_t block) const;
  Chunk chunk_of_leg(uint64_t id) const;
  void encode(Chunk& chunk, const memory::Encoding& encoding) const;
  uint32_t slots_of_slices() const;
  uint32_t slots_per_slice() const;
  uint32_t slot_bytes_of(uint32_t chunk_bytes) const;
  uint32_t slots_per_step() const;
  uint32_t slots_of_rounds() const;

  Shape shape_;
  PatternRow row_;
  uint64_t block_stride_ = 0;                    // kPerRank, kWhole: bytes of a block
  uint64_t total_bytes_ = 0;                     // bytes of all blocks
  memory::Encoding encoding_, result_encoding_;  // of contributions, and of results
  uint32_t grain_bytes_ = 64;                    // every chunk but the last has a multiple
  uint32_t chunk_bytes_ = 64;                    // in memory
  uint32_t slot_bytes_ = 64;
  uint32_t last_chunk_bytes_ = 64;  // kSliced: bytes of a chunk in the last slice
  uint32_t depth_ = kDepth;
  uint32_t standard_depth_ = kDepth;  // without Shape::scratch_bytes: all members have that much
  uint64_t rounds_ = 0;               // 0: nothing is sent at all
  uint64_t slices_ = 0;               // kListed: chunks of all blocks
  Cut cut_;                           // kShared
  uint32_t round_ = 0;                // of a leg: the first round that it has
  // kListed: the byte offset of each block, and the step of its first chunk.
  std::vector<uint64_t> block_offsets_;
  std::vector<uint64_t> first_steps_;  // one entry per block, and the end
};

}  // namespace pccl::ring
