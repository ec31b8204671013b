// Undo: the saved bytes of one operation. What an operation overwrites is copied here first, to a
// row of its own, so that a failed operation leaves no trace (promise P2). Each unit of the
// schedule writes its stretch from the start on: how far each has come says exactly what was
// overwritten, a chunk cut in the middle included. Where nothing is restored the row is short, and
// a stretch is written again once what was there has been sent. Belongs to the thread that lands
// the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/ring/pool.h"

namespace pccl::ring {

class Undo {
 public:
  explicit Undo(Pool& pool) : saved_(pool) {}

  // Room for a row of so many bytes that `units` units write; false if there is none. Once.
  bool reserve(uint64_t bytes, uint64_t units);
  // Of `unit`, the next bytes, at `from`, are about to be overwritten. They belong at `at` in the
  // row. REQUIRES: there is room.
  void save(uint64_t unit, uint64_t at, const std::byte* from, size_t bytes);
  // Copies what lies at `at` in the row. REQUIRES: it was saved there.
  void read(uint64_t at, std::span<std::byte> to) const;
  // How many bytes of it have been saved.
  uint64_t saved(uint64_t unit) const { return unit < lengths_.size() ? lengths_[unit] : 0; }
  // Writes what was saved of `unit` from its `from`-th byte on back to where it was, and forgets
  // that. The unit begins at `at` in the row and at `to` where it was.
  void restore(uint64_t unit, uint64_t at, std::byte* to, uint64_t from = 0);
  // Nothing lies in the row from the `end`-th byte on: that room is given back.
  void shrink(uint64_t end) { saved_.shrink(end); }

 private:
  Slabs saved_;
  std::vector<uint32_t> lengths_;  // by unit
};

}  // namespace pccl::ring
