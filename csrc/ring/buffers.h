// OpBuffers: the borrowed tensors together with scratch and the saved bytes that make a failed
// operation leave no trace (promise P2).
// The Engine owns one OpBuffers per operation and uses it on one thread. OpBuffers uses no socket
// and decides nothing: the Engine decides which chunk lands where.
// Rules for a landing chunk:
//  (1) Several chunks land at once, one on each lane. Each piece is reduced as soon as it has
//      arrived, while it is in cache.
//  (2) The old bytes under a kStore chunk are saved before its first byte lands; that also warms
//      the cache lines for the socket's copy. The old bytes under a kFinish chunk are saved piece
//      by piece, before the sum is written.
//  (3) The received bytes are the first operand, this rank's tensor the second. In a pairwise
//      exchange the tensor of rank 0 is the first operand on both ranks. An owner (kDirect) adds
//      all contributions to a chunk at once, in rank order, when the last one is here.
//  (4) A chunk of codes is decoded when all of it has landed. This rank's own contribution is
//      replaced by the decoded values of its codes, and the sum is a float32. If the result is
//      encoded, every member stores the decoded codes, also the owner of the result. Around a ring,
//      the partial sum is encoded again, and the codes of the result are passed on unchanged.
//  (5) A member that is absent contributes zeros, which are never written to its tensor. The tensor
//      gets the result.
// Failure: make() returns kSystem when there is no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/result.h"
#include "csrc/memory/kernels.h"
#include "csrc/memory/pool.h"
#include "csrc/memory/quantize.h"
#include "csrc/memory/undo.h"
#include "csrc/ring/lent_memory.h"
#include "csrc/ring/schedule.h"

namespace pccl::ring {

class OpBuffers {
 public:
  // kSystem if there is no memory for scratch or for the saved bytes; the message shows the
  // requested size. REQUIRES: `memory` covers every block of the schedule.
  static Result<std::unique_ptr<OpBuffers>> make(const Shape& shape, Memory memory,
                                                 memory::Pool& pool);

  // Begins the operation: copies this rank's part for itself to its place. If the result of a
  // one-shot operation overwrites this rank's contribution, begin() copies the contribution,
  // because the sum still needs it. In place, it is also sent from the copy. Call it once, before a
  // chunk is sent or received.
  void begin();
  // The bytes of a chunk to send. REQUIRES: copy_bytes() is 0.
  std::span<const std::byte> source(const Chunk& sent) const;
  // Returns the bytes of room that copy_source() needs for a chunk to send. It needs room if the
  // chunk is not encoded yet, or if a landing chunk may overwrite it before or while it is sent. 0
  // if neither is the case.
  size_t copy_bytes(const Chunk& sent) const;
  // Makes the bytes of a chunk to send in `room`, and returns them.
  std::span<const std::byte> copy_source(const Chunk& sent, std::span<std::byte> room) const;
  // In a direct all-reduce: combines the contributions to `result`, a chunk that this rank owns. In
  // a one-shot operation: combines or stores all parts. Both go in rank order. `absent`: the number
  // of absent members.
  void combine(const Chunk& result, uint32_t absent = 0);

  // A chunk that is landing.
  struct Landing {
    Chunk chunk;
    Action action = Action::kStore;
    std::span<std::byte> where;
    size_t reduced = 0;   // bytes already reduced
    uint32_t absent = 0;  // number of absent members, if this is the last contribution
  };
  // Whether the chunk lands in the lane's own scratch.
  bool lands_apart(const Chunk& chunk, Action action) const {
    if (action == Action::kFinish) return true;
    return action == Action::kStore && chunk.encoding && !schedule_.passes_codes(chunk);
  }
  // Begins a landing, and saves the bytes that a kStore chunk will overwrite. `spare` is the lane's
  // scratch for a chunk that lands apart: it is at least as large as the chunk, and belongs to the
  // landing until the landing is over. REQUIRES: called once for each chunk.
  Landing land(const Chunk& chunk, Action action, std::span<std::byte> spare, uint32_t absent = 0);
  // `bytes` more bytes have landed, at byte `at` of the chunk. Reduces whole cache lines, and the
  // last part of a cache line once the chunk is complete.
  void absorb(Landing& landing, size_t at, size_t bytes);
  // Puts back the overwritten bytes, except those before byte `from` of the row and those that were
  // put back already. REQUIRES: nothing lands or leaves any more.
  void restore(uint64_t from = 0);
  // Gives back all memory that restore() does not need for the bytes before byte `end`. Only
  // restore() may be called afterwards.
  void close(uint64_t end);

 private:
  OpBuffers(const Shape& shape, Memory memory, memory::Pool& pool);
  Status reserve();
  std::byte* memory_of(const Chunk& chunk) const;  // where its bytes or its result are written
  const std::byte* operand_of(const Chunk& chunk) const;  // the second operand, or bytes to send
  std::span<const std::byte> contribution(const Chunk& sent) const;  // one-shot
  // The contribution of this member: `own`, or zeros if it is absent.
  const std::byte* contributed(const std::byte* own) const;
  memory::Reduction reduction(uint32_t absent) const;
  std::span<std::byte> place(const Chunk& chunk, Action action, std::span<std::byte> spare);
  // Reduce-scatter: whether the result is in the block of this rank.
  bool in_own_input() const;
  void check_room(const Shape& shape) const;
  void copy_own(std::span<const std::byte> from, std::span<std::byte> to, uint64_t at);
  // Saves bytes of a written chunk, before they are overwritten.
  void save(const Chunk& chunk, size_t from, size_t bytes);
  // Saves bytes that no chunk of the schedule covers, before they are overwritten. `at`: their
  // offset in the row.
  void save_apart(std::span<std::byte> bytes, uint64_t at);
  void zero_alone();
  void combine_parts();
  void combine_reduced(const memory::Reduction& reduction);
  void combine_owned(const Chunk& result, const memory::Reduction& reduction);
  void combine_encoded(const Chunk& result, const memory::Reduction& reduction);
  void decode(const Landing& landing);
  void add_encoded(const Landing& landing);
  void add_and_encode(const Landing& landing);
  void finish_encoded(const Landing& landing);
  void store_encoded(const Chunk& result, memory::Stretch piece, const memory::Reduction& how,
                     float* sum, std::byte* codes) const;
  std::byte* slot(uint32_t index) const;
  memory::Rounding rounding(const Chunk& chunk, uint64_t key) const;

  const Schedule schedule_;
  const Memory memory_;
  const memory::Reduction reduction_;
  const size_t slots_per_slab_;
  memory::Slabs scratch_;
  memory::Undo undo_;
  bool saves_ = false;
  bool begun_ = false;
  bool combined_ = false;  // the sum was written in place
  struct SavedApart {
    uint64_t at;  // offset in the row
    std::byte* bytes;
  };
  std::vector<SavedApart> saved_apart_;
};

}  // namespace pccl::ring
