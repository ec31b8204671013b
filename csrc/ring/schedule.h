// Schedule: which pieces of a tensor a rank sends and receives, and in which order they should
// travel. Pure arithmetic over (kind, rank, world, sizes); every member computes the same schedule
// from the same operation, so nothing of it travels.
//
// An all-reduce cuts the tensor into slices, each slice into `world` blocks of one chunk. Every
// slice makes 2(N-1) rounds: N-1 of reduce-scatter, N-1 of all-gather. In step t a rank sends round
// q of slice t-q for every q, so each chunk leaves one step after it arrived, while it is in cache,
// scratch does not grow with the tensor, and results appear from the tensor's start on (software
// pipelining; the ring itself: PCCL report, section 4.1). At N = 3, three slices, rounds q = 0..3:
//
//     step   0      1      2      3      4      5
//     sends  s0q0   s1q0   s2q0   s2q1   s2q2   s2q3
//                   s0q1   s1q1   s1q2   s1q3
//                          s0q2   s0q3
//
// That order keeps little under way at a time. Of a small tensor whose members are far from each
// other all may be under way at once; then the rounds go one after another. A lane carries what is
// most behind first: each chunk makes all rounds, and the last to have made them ends the
// operation.
//
// Round q sends block (rank - q), receives block (rank - 1 - q), modulo N. All-gather is the second
// half alone (round q sends block rank - q). Broadcast goes around the ring from the root, a
// transfer (send/recv, shared state) from its source to its destination: one round, blocks one
// after another. Two all-reduces do not go around the ring. An exchange (exchange.h) has no units,
// only a slot of scratch for the whole tensor of each member. A mutual one, of two members that are
// far from each other, is one round: each sends all of its tensor and reduces all of the other's.
// That is as many bytes as two rounds of halves, half of the way, and neither direction waits for
// the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/dtype.h"

namespace pccl::ring {

enum class Pattern : uint8_t { kAllReduce, kAllGather, kBroadcast, kTransfer, kExchange, kMutual };

// What a landing chunk does with what was there. kAccumulate: arrives in a scratch slot, the tensor
// is added to it there. kFinish: arrives in scratch, is added to the tensor, which then holds the
// result. kStore: final bytes, straight into the tensor. kGather: in the scratch slot of the one
// who sent it, for later.
enum class Action : uint8_t { kAccumulate, kFinish, kStore, kGather };

struct Shape {
  Pattern pattern = Pattern::kAllReduce;
  // Position in the ring (kAllReduce, kAllGather, kExchange, kMutual), distance from the root
  // (kBroadcast), 0 for the source and 1 for the destination (kTransfer).
  uint32_t rank = 0;
  uint32_t world = 1;  // 2 for kTransfer, kMutual
  uint64_t element_bytes = 1;
  // Elements of the tensor; of one rank's (kAllGather).
  uint64_t count = 0;
  std::vector<uint64_t> block_bytes;  // kTransfer only: the size of each block
  // It takes long from one member to the next: chunks are smaller and more of them are under way.
  bool far = false;
  // kMutual: all that is overwritten is kept until the end; else only until it has been sent. Each
  // member for itself.
  bool restored = true;
};

// One chunk of the schedule, as one rank sends or receives it. `id` counts them slice by slice, and
// is the same for the two ends of its way. `bytes` may be 0: the frame still travels, so that both
// ends count alike.
struct Unit {
  uint64_t id = 0;
  uint64_t step = 0;
  uint32_t slice = 0;
  uint16_t round = 0;
  uint32_t block = 0;
  uint64_t offset = 0;  // in the row of all blocks
  uint32_t bytes = 0;
  bool operator==(const Unit&) const = default;
};

class Schedule {
 public:
  static constexpr uint32_t kDepth = 4;  // depth() of a ring whose members are near each other

  explicit Schedule(Shape shape);
  const Shape& shape() const { return shape_; }

  // The row of all blocks, one after another. REQUIRES of the last three: not kAllReduce, whose
  // tensor is in one piece.
  uint64_t total_bytes() const { return total_bytes_; }
  uint32_t block_count() const;
  uint64_t block_bytes(uint32_t block) const;
  uint64_t block_offset(uint32_t block) const;
  uint32_t chunk_bytes() const;
  uint64_t step_count() const;
  uint32_t depth() const { return depth_; }  // steps of scratch: how far upstream may run ahead

  // False: nothing at all leaves (the last of a broadcast, a destination, world 1, no elements).
  bool sends() const;
  bool receives() const;

  // The least of what may be sent goes first. Where lanes are many, units arrive in another order.
  uint64_t order(uint64_t id) const;
  // Units step by step, as credit counts them. A cursor is at a unit or at the end.
  struct Cursor {
    uint64_t step = 0;
    uint32_t position = 0;
    bool at_end = false;
  };
  uint64_t unit_count() const { return rounds_ * slices_; }
  Cursor first() const { return {0, 0, unit_count() == 0}; }
  void advance(Cursor& cursor) const;
  uint64_t id(const Cursor& cursor) const;
  Cursor place(uint64_t id) const;
  Unit unit_sent(uint64_t id) const;
  Unit unit_received(uint64_t id) const;
  // The unit with these marks, if it is one of this schedule.
  std::optional<uint64_t> find(uint16_t round, uint32_t block, uint32_t slice) const;

  // What may be sent without having received anything: 0, stride, 2 x stride... below the end.
  struct Sources {
    uint64_t end = 0;
    uint64_t stride = 1;
  };
  Sources sources() const;
  // What may be sent once `received` is here, if anything.
  std::optional<uint64_t> unlocked_by(uint64_t received) const;

  // What a received unit does, and where a sent one comes from.
  Action action(const Unit& received) const;
  bool from_scratch(const Unit& sent) const;
  // What lands may overwrite what has not been sent yet.
  bool overtakes() const { return shape_.pattern == Pattern::kMutual; }
  // Scratch: slots of chunk_bytes each. slot(received) is where a kAccumulate unit lands (and is
  // sent from, one round later), slot_sent(sent) the same slot seen from the sender's unit. A
  // kFinish unit lands in scratch of the lane's own. In an exchange each member has a slot, by its
  // place.
  uint32_t slot_count() const;
  uint32_t slot(const Unit& received) const;
  uint32_t slot_sent(const Unit& sent) const;

  // How many steps upstream may have sent, given that all before `sent` have left us and all before
  // `received` have come: the credit to grant.
  uint64_t credit(const Cursor& sent, const Cursor& received) const;
  // What may leave before downstream has asked for it: so many steps, which downstream has room for
  // from the beginning and which cost at most `room` (head_start.h) where it has not posted yet.
  // None where members are near each other, and of a transfer.
  struct Head {
    uint64_t steps = 0, cost = 0;
  };
  Head head(uint64_t room) const;
  // So many elements from the tensor's start are final here, given that all before `received` have
  // come. REQUIRES: kAllReduce or kMutual.
  uint64_t finished(const Cursor& received) const;

 private:
  // kAllReduce, kAllGather: software-pipelined rounds. Else one round, units in a row.
  bool in_ring() const;
  uint32_t block_of(uint64_t id) const;
  Unit unit(uint64_t id, uint32_t block) const;
  uint32_t slots_per_step() const;

  Shape shape_;
  uint64_t block_stride_ = 0;  // kAllGather, kBroadcast, kMutual: bytes of a block
  uint64_t total_bytes_ = 0;   // of all blocks
  uint32_t chunk_bytes_ = 64;
  uint32_t last_chunk_bytes_ = 64;  // kAllReduce: in the last slice
  uint32_t depth_ = kDepth;
  uint64_t rounds_ = 0;  // 0: nothing travels at all
  uint64_t slices_ = 0;  // kTransfer: units of all blocks
  // kTransfer: where each block starts in the row of all blocks, and the step of its first unit.
  std::vector<uint64_t> block_offsets_;
  std::vector<uint64_t> first_steps_;  // and the end
};

}  // namespace pccl::ring
