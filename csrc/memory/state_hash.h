// state_hash: the hash that peers compare to agree on shared state. Its 64 bits show whether two
// tensors hold the same bytes, at nearly the speed of memory. The value is the same on every
// machine, for any number of threads, on a CPU and on a GPU.
// It may be called from any thread and allocates nothing. If built with OpenMP, it uses the OpenMP
// team of the calling thread and does not change its settings. StateHasher takes the bytes in
// pieces.
// It is not a secret hash: it finds accidental differences, and members of a run trust each other.
//
// The definition never changes, because shared state of past runs is identified by it. All numbers
// are unsigned and wrap around at 64 bits; "^" is exclusive or; "lo" and "hi" are the low and high
// 32 bits.
//
//   turn(s, k)    t = lo(s) * k + (hi(s) << 32), with a 64-bit product; then t with its halves
//                 swapped. One-to-one in s, because k is odd.
//   mix(s)        turn(turn(s, 0x9E3779B1), 0x85EBCA77)
//   merge(a, b)   mix(mix(a) ^ b): one-to-one in each argument, and not symmetric
//   settle(s)     mix(mix(mix(s ^ 0x9E3779B97F4A7C15)))
//
//   Words. The bytes are little-endian 64-bit words. 32 words are a row (256 bytes), 64 rows are a
//          tile (16 KiB). A short last row is filled with zero bytes; a short last tile has fewer
//          rows. Zero bytes give zero tiles.
//   Lanes. Tile t (from 0) has 32 lanes. Lane j starts at (32 * t + j + 1) * 0xC2B2AE3D27D4EB4F and
//          takes word j of each row in order: lane = mix(lane ^ word).
//   Tile.  For half = 16, 8, 4, 2, 1: lane[j] = merge(lane[j], lane[j + half]) for all j < half.
//          The tile's value is settle(lane[0]).
//   Hash.  settle(merge(sum of the values of all tiles, number of bytes)).
//
// On a GPU a tile is a warp: a lane is a thread, turn() is one multiply-add (mad.wide.u32), a row
// is one coalesced load, the merges are five shuffles, and the sum is an atomic add. A sum does not
// depend on the order of the tiles; the start values of its lanes tie each tile to its position.
//
// A change within one aligned word always changes the hash: every step from the word to the end is
// one-to-one. Any other change (words, rows or tiles that swap positions, bytes added at the end)
// goes unnoticed with a probability of about 2^-64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pccl::memory {

uint64_t state_hash(const std::byte* data, size_t bytes);

// The hashes of several entries, which the thread team shares.
std::vector<uint64_t> state_hashes(const std::vector<std::span<const std::byte>>& entries);

class StateHasher {
 public:
  // The size of every piece but the last is a multiple of this number of bytes.
  static constexpr size_t kUnitBytes = 16384;
  void add(std::span<const std::byte> piece);
  uint64_t value() const;
  uint64_t sum() const { return sum_; }  // of the values of the tiles so far

 private:
  uint64_t sum_ = 0;
  uint64_t bytes_ = 0;
};

// Returns the sum of the values of the tiles of one part of the data. The part begins at byte
// `offset` of the data. The sums of all parts, added in any order, give the hash of the whole
// (hash_of_sum). REQUIRES: `offset` is a multiple of StateHasher::kUnitBytes, and so is the size of
// the part unless it is the last.
uint64_t state_sum(std::span<const std::byte> part, uint64_t offset);
uint64_t hash_of_sum(uint64_t sum, uint64_t bytes);

// One hash for a list: start with 0 and combine in order. In the terms above it is
// settle(merge(so_far, next)). The result always changes when one of the two arguments changes, and
// the order matters. `next` may be a hash or any other number (dtype, count, ...).
uint64_t combine_hashes(uint64_t so_far, uint64_t next);

}  // namespace pccl::memory
