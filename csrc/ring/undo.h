// Undo: the saved bytes of one operation. What an operation overwrites is copied here first, so
// that a failed operation leaves no trace (promise P2). A log: where its bytes came from is known
// from the order in which they were saved, which is the schedule's. So saving allocates nothing,
// and its length says exactly what was overwritten, a chunk cut in the middle included. Belongs to
// the thread that lands the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/ring/pool.h"

namespace pccl::ring {

class Undo {
 public:
  explicit Undo(Pool& pool) : saved_(pool) {}

  // Room for so many bytes; false if there is none. Once.
  bool reserve(uint64_t bytes) { return saved_.reserve(bytes); }
  // The bytes at `from` are about to be overwritten. REQUIRES: there is room.
  void save(const std::byte* from, size_t bytes);
  uint64_t length() const { return length_; }
  // Writes saved bytes, from the `at`-th on, to `to`. REQUIRES: at + bytes <= length().
  void restore(uint64_t at, std::byte* to, size_t bytes) const;
  // Nothing more will be saved: the rest of the room is given back.
  void close() { saved_.shrink(length_); }

 private:
  Slabs saved_;
  uint64_t length_ = 0;
};

}  // namespace pccl::ring
