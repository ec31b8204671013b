// Pool: memory for scratch and saved bytes, kept between operations. The kernel must clear a fresh
// page first, which costs as much as the copy into it; kept memory avoids that.
// The Engine owns the pool and uses it on one thread.
// Invariant: idle and lent bytes together are at most the larger of kIdleBytes and the peak of lent
// bytes during the last operations (kTurns to 2 x kTurns operations). A large tensor therefore does
// not hold its memory for ever.
// Failure: take() returns null and take_slabs() returns false when the system has no memory.
// Slabs: the memory that one operation has from the pool. It is a row of bytes, which is contiguous
// within each slab.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/prefaulter.h"

namespace pccl::memory {

class Pool {
 public:
  static constexpr size_t kSlabBytes = size_t{4} << 20;  // two huge pages
  static constexpr size_t kSmallestBytes = 4096;
  static constexpr uint64_t kIdleBytes = uint64_t{64} << 20;
  static constexpr uint32_t kTurns = 64;
  // If a call takes at least this many bytes of fresh slabs, the page prefaulter touches them
  // before they are used.
  static constexpr uint64_t kPrefaultedBytesMin = uint64_t{16} << 20;

  Pool() = default;
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Returns at least `bytes` bytes, aligned to 64, with arbitrary contents. Returns null if the
  // system has no memory. REQUIRES: 0 < bytes <= kSlabBytes.
  std::byte* take(size_t bytes);
  // Appends `count` slabs of kSlabBytes to `slabs`. If the system has not enough memory, appends
  // nothing and returns false.
  bool take_slabs(uint64_t count, std::vector<std::byte*>& slabs);
  // Returns memory to the pool. REQUIRES: `memory` is from take(bytes), or it is a slab and `bytes`
  // is kSlabBytes.
  void give(std::byte* memory, size_t bytes);
  // Counts an operation that has begun. Memory that no operation has needed for a while goes back
  // to the system.
  void turn();

  uint64_t bytes_held() const { return lent_ + idle_; }

 private:
  static constexpr size_t kClasses = std::bit_width(kSlabBytes / kSmallestBytes);
  static size_t class_of(size_t bytes);
  static size_t class_bytes(size_t index) { return kSmallestBytes << index; }
  void lend(uint64_t bytes);
  void give_back(std::byte* memory, size_t bytes);  // to the system
  void trim();

  Prefaulter prefaulter_;
  std::array<std::vector<std::byte*>, kClasses> free_;  // by size class: powers of two
  uint64_t lent_ = 0;
  uint64_t idle_ = 0;
  uint64_t peak_now_ = 0;     // peak of lent_ since turns_ was last 0
  uint64_t peak_before_ = 0;  // peak of lent_ in the kTurns operations before
  uint32_t turns_ = 0;
};

class Slabs {
 public:
  explicit Slabs(Pool& pool) : pool_(&pool) {}
  ~Slabs();
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // Takes `bytes` bytes from the pool; false if there is no memory. Call it only once.
  bool reserve(uint64_t bytes);
  // Gives back the slabs that lie entirely beyond the first `bytes` bytes.
  void shrink(uint64_t bytes);
  // The bytes from `offset` to the end of their slab: never empty. REQUIRES: offset < bytes
  // reserved.
  std::span<std::byte> at(uint64_t offset) const;

 private:
  Pool* const pool_;
  uint64_t bytes_ = 0;             // total size of slabs_
  std::vector<std::byte*> slabs_;  // each kSlabBytes long; the last may be shorter
};

}  // namespace pccl::memory
