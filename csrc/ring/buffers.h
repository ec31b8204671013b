// Memory: what an application lends to one operation. Spans stay lent until OpDrained. OpBuffers:
// that memory together with scratch and the saved bytes that make a failed operation leave no trace
// (promise P2). No socket here, and no decision: the Engine says what lands where, in the order of
// the schedule. Belongs to one thread.
// How a landing chunk is dealt with: several land at once, one on each lane; each piece is reduced
// as soon as it is there, while it is in cache. A kStore chunk is saved before its first byte
// lands, which also warms the lines for the socket's copy; a kFinish chunk piece by piece, before
// the sum is written. What arrived is the first operand, this rank's tensor the second; in a mutual
// all-reduce rank 0's is the first, on both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/ring/pool.h"
#include "csrc/ring/schedule.h"
#include "csrc/ring/undo.h"

namespace pccl::ring {

// One span per block where blocks are separate tensors (all-gather, transfers); a single span that
// the schedule cuts into blocks otherwise (all-reduce, broadcast; an all-gather into one tensor).
struct Memory {
  std::vector<std::span<std::byte>> spans;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  int contributors = 1;  // AVG divides by it
  bool save = true;      // keep what is overwritten until the outcome is known
};

class OpBuffers {
 public:
  // kSystem when scratch or room for the saved bytes cannot be had: says how much was asked for.
  // REQUIRES: `memory` has the bytes of every block of the schedule.
  static Result<std::unique_ptr<OpBuffers>> make(const Shape& shape, Memory memory, Pool& pool);

  // Where a unit is sent from. REQUIRES: !overtakes().
  std::span<const std::byte> source(const Unit& sent) const;
  // What lands may overwrite a unit before it has been sent, or while it is: it is sent from a copy
  // of what was there before.
  bool overtakes() const { return schedule_.overtakes(); }
  void copy_source(const Unit& sent, std::span<std::byte> to) const;
  // kExchange: this rank's tensor, as it was; and the result from what all have sent, in the order
  // of their places.
  std::span<const std::byte> own() const { return {slot(schedule_.shape().rank), tensor().size()}; }
  void combine();

  // A unit that is landing.
  struct Landing {
    Unit unit;
    Action action = Action::kStore;
    std::span<std::byte> where;
    size_t reduced = 0;  // bytes of it
  };
  // What it would overwrite is saved. `spare`: the lane's own scratch, for a kFinish unit; it has
  // chunk_bytes() and is the landing's until that is over. REQUIRES: each unit once.
  Landing land(const Unit& unit, Action action, std::span<std::byte> spare);
  // `bytes` more bytes of it have landed at its byte `at`: whole elements are reduced.
  void absorb(Landing& landing, size_t at, size_t bytes);
  // Puts back what was overwritten from the `from`-th byte of the row on, and has not been put back
  // yet. REQUIRES: nothing lands or leaves any more.
  void restore(uint64_t from = 0);
  // Only restore() will follow, of what lies before the `end`-th byte: the rest is given back.
  void close(uint64_t end);

 private:
  OpBuffers(const Shape& shape, Memory memory, Pool& pool);
  Status reserve();
  uint64_t saved_bytes() const;
  uint64_t saved_at(const Unit& unit) const;
  std::byte* place(const Unit& unit) const;
  std::span<std::byte> tensor() const;  // kExchange
  std::byte* slot(uint32_t index) const;

  const Schedule schedule_;
  const Memory memory_;
  const size_t slots_per_slab_;
  Slabs scratch_;
  Undo undo_;
  bool saves_ = false;
  bool combined_ = false;
};

}  // namespace pccl::ring
