// Undo: the saved bytes of one operation. What an operation overwrites is copied here first;
// restore() puts it back, so that a failed operation leaves no trace (promise P2). Belongs to the
// thread that lands the bytes.
// Invariant: within each block bytes are overwritten from its start on, without gaps, since slices
// travel in order. So one length per block says exactly what was overwritten, a chunk cut in the
// middle included, and saving allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/ring/pool.h"
#include "csrc/ring/schedule.h"

namespace pccl::ring {

class Undo {
 public:
  explicit Undo(Pool& pool) : saved_(pool) {}

  // Reserves room for all blocks; false if there is none. Not called: save() must not be either,
  // restore() does nothing.
  bool prepare(const Schedule& schedule);
  // `bytes` bytes of `block` from `offset` on, now at `from`, are about to be overwritten.
  // REQUIRES: the block's bytes before `offset` have been saved, these have not.
  void save(uint32_t block, uint64_t offset, const std::byte* from, size_t bytes);
  // Writes back what was saved of `block`, whose first byte is at `to`. Once for each block.
  void restore(uint32_t block, std::byte* to) const;

 private:
  Slabs saved_;  // the blocks one after another, as the schedule lays them out
  std::vector<uint64_t> starts_;
  std::vector<uint64_t> lengths_;
};

}  // namespace pccl::ring
