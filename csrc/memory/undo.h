// Undo: the saved bytes of one operation. Bytes that an operation overwrites are copied here first,
// into one row per operation, so that a failed operation leaves no trace (promise P2).
// OpBuffers owns it; it belongs to the thread that lands the bytes.
// Invariants:
//  (1) Each chunk of the schedule fills its own stretch of the row from the start. Its length
//      therefore shows exactly which bytes were overwritten, even for a chunk that was cut in the
//      middle.
//  (2) If nothing is to be restored, the row is short. A stretch is reused once the bytes saved in
//      it have been sent.
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

  // Reserves a row of `bytes` bytes that `chunks` chunks write to; false if there is no memory.
  // REQUIRES: called once.
  bool reserve(uint64_t bytes, uint64_t chunks);
  // Saves the next `bytes` bytes of chunk `chunk`, at `from`, before they are overwritten. They
  // belong at `at` in the row. REQUIRES: the row has room for them.
  void save(uint64_t chunk, uint64_t at, const std::byte* from, size_t bytes);
  // Copies saved bytes from `at` in the row into `to`. REQUIRES: they were saved there.
  void read(uint64_t at, std::span<std::byte> to) const;
  // Bytes of the chunk that have been saved.
  uint64_t saved(uint64_t chunk) const { return chunk < lengths_.size() ? lengths_[chunk] : 0; }
  // Writes the saved bytes of chunk `chunk` back, starting with its byte `from`, and forgets them.
  // The chunk begins at `at` in the row and at `to` in the tensor.
  void restore(uint64_t chunk, uint64_t at, std::byte* to, uint64_t from = 0);
  // The row is not used from byte `end` on: gives that room back.
  void shrink(uint64_t end) { saved_.shrink(end); }

 private:
  Slabs saved_;
  std::vector<uint32_t> lengths_;  // bytes saved, by chunk id
};

}  // namespace pccl::memory
