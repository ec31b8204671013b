// Undo: the saved bytes of one operation. Bytes that an operation overwrites are copied here first,
// into one row per operation, so that a failed operation leaves no trace (promise P2).
// OpBuffers owns it; it belongs to the thread that lands the bytes.
// Invariants:
//  (1) Each chunk of the schedule fills its own stretch of the row from the start. The number of
//      saved bytes of a chunk therefore shows exactly which bytes were overwritten, even if the
//      chunk arrived only in part.
//  (2) If nothing is to be restored, the row is a ring buffer. A stretch is used again once the
//      bytes saved in it have been sent.
// Failure: reserve() returns false when there is no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/memory/pool.h"

namespace pccl::memory {

class Undo {
 public:
  explicit Undo(Pool& pool) : saved_(pool) {}

  // Reserves a row of `bytes` bytes for the saved bytes of `chunks` chunks. Returns false if there
  // is no memory. REQUIRES: called once.
  bool reserve(uint64_t bytes, uint64_t chunks);
  // Saves the next `bytes` bytes of chunk `chunk` before they are overwritten. `from` points to
  // them; `at` is their offset in the row. REQUIRES: the row has room for them.
  void save(uint64_t chunk, uint64_t at, const std::byte* from, size_t bytes);
  // Copies saved bytes into `to`. `at` is their offset in the row. REQUIRES: they were saved there.
  void read(uint64_t at, std::span<std::byte> to) const;
  // Returns the number of saved bytes of the chunk.
  uint64_t saved(uint64_t chunk) const { return chunk < lengths_.size() ? lengths_[chunk] : 0; }
  // Writes the saved bytes of chunk `chunk` back to the tensor, and forgets them; the first `from`
  // bytes of the chunk stay saved. `at` is the offset of the chunk in the row; `to` points to the
  // chunk in the tensor.
  void restore(uint64_t chunk, uint64_t at, std::byte* to, uint64_t from = 0);
  // Gives back the memory of the row behind byte `end`, which is no longer used.
  void shrink(uint64_t end) { saved_.shrink(end); }

 private:
  Slabs saved_;
  std::vector<uint32_t> lengths_;  // bytes saved, by chunk id
};

}  // namespace pccl::memory
