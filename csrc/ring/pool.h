// Pool: memory for scratch and saved bytes. It is kept between operations, because a page that the
// kernel must clear first costs as much as the copy that goes into it. Belongs to one thread.
// Invariant: what lies idle here and what is lent out are together at most the larger of kIdleBytes
// and what was lent at once during the last operations (one to two times kTurns of them): a large
// tensor does not cost its size for ever.
// Slabs: one operation's share of it, a row of bytes that is contiguous within each slab.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/clearer.h"

namespace pccl::ring {

class Pool {
 public:
  static constexpr size_t kSlabBytes = size_t{4} << 20;  // two huge pages
  static constexpr size_t kSmallestBytes = 4096;
  static constexpr uint64_t kIdleBytes = uint64_t{64} << 20;
  static constexpr uint32_t kTurns = 64;
  // Fresh slabs, from so many bytes on, are cleared before they are needed.
  static constexpr uint64_t kClearedBytesMin = uint64_t{16} << 20;

  Pool() = default;
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // At least `bytes` bytes at a multiple of 64, contents arbitrary; null if the system has none.
  // REQUIRES: 0 < bytes <= kSlabBytes.
  std::byte* take(size_t bytes);
  // Appends `count` times kSlabBytes to `slabs`, or nothing: false if the system has not as much.
  bool take_slabs(uint64_t count, std::vector<std::byte*>& slabs);
  // REQUIRES: what take(bytes) returned, or a slab and kSlabBytes.
  void give(std::byte* memory, size_t bytes);
  // An operation has begun: what no operation has needed for a while goes back to the system.
  void turn();

  uint64_t bytes_held() const { return lent_ + idle_; }

 private:
  static constexpr size_t kClasses = std::bit_width(kSlabBytes / kSmallestBytes);
  static size_t class_of(size_t bytes);
  static size_t class_bytes(size_t index) { return kSmallestBytes << index; }
  void lend(uint64_t bytes);
  void give_back(std::byte* memory, size_t bytes);  // to the system
  void trim();

  Clearer clearer_;
  std::array<std::vector<std::byte*>, kClasses> free_;  // by size: powers of two
  uint64_t lent_ = 0;
  uint64_t idle_ = 0;
  uint64_t peak_now_ = 0;     // of lent_, since the last change of window
  uint64_t peak_before_ = 0;  // in the window before it
  uint32_t turns_ = 0;
};

class Slabs {
 public:
  explicit Slabs(Pool& pool) : pool_(&pool) {}
  ~Slabs();
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // Takes `bytes` from the pool; false if they cannot be had. Once only.
  bool reserve(uint64_t bytes);
  // Gives back the slabs that lie wholly beyond the first `bytes` bytes.
  void shrink(uint64_t bytes);
  // The bytes from `offset` to the end of their slab: never empty. REQUIRES: offset < bytes
  // reserved.
  std::span<std::byte> at(uint64_t offset) const;

 private:
  Pool* const pool_;
  uint64_t bytes_ = 0;             // in slabs_
  std::vector<std::byte*> slabs_;  // all kSlabBytes long but the last, which may be shorter
};

}  // namespace pccl::ring
