// The hash by which peers agree on shared state: 64 bits that tell whether two tensors hold the
// same bytes, near the speed of memory. The same value on every machine, for any number of threads,
// on a CPU and on a GPU. Not a secret hash: it finds what differs by accident, and members of a run
// trust each other. Call from any thread; allocates nothing. Uses the OpenMP team of the calling
// thread if built with OpenMP, and leaves its settings alone.
//
// Definition, which never changes: shared state of past runs is known by it. All numbers are
// unsigned and wrap around at 64 bits; "^" is exclusive or; "lo" and "hi" are the low and high 32
// bits.
//
//   turn(s, k)    t = lo(s) * k + (hi(s) << 32), the product being of 64 bits; then t with its
//                 halves swapped. One-to-one in s, since k is odd.
//   mix(s)        turn(turn(s, 0x9E3779B1), 0x85EBCA77)
//   merge(a, b)   mix(mix(a) ^ b): one-to-one in each of the two, and not symmetric
//   settle(s)     mix(mix(mix(s ^ 0x9E3779B97F4A7C15)))
//
//   Words. The bytes are little-endian 64-bit words; 32 words are a row (256 bytes), 64 rows a tile
//          (16 KiB). A last row that is short is filled up with zero bytes, a last tile that is
//          short has fewer rows. No bytes, no tiles.
//   Lanes. Tile t (from 0) has 32 lanes. Lane j starts at (32 * t + j + 1) * 0xC2B2AE3D27D4EB4F and
//          takes word j of each row in order: lane = mix(lane ^ word).
//   Tile.  For half = 16, 8, 4, 2, 1: lane[j] = merge(lane[j], lane[j + half]) for all j < half.
//          The tile's value is settle(lane[0]).
//   Hash.  settle(merge(sum of the values of all tiles, number of bytes)).
//
// On a GPU a tile is a warp: a lane is a thread, turn() one multiply-add (mad.wide.u32), a row one
// coalesced load, the merges five shuffles, the sum an atomic add. A sum does not care in which
// order tiles are done; the start of its lanes ties each tile to its place.
//
// A change within one aligned word changes the hash for certain: every step from the word to the
// end is one-to-one. Any other (words, rows or tiles that change places, bytes added at the end)
// goes unseen with the odds of 64 random bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pccl::ring {

uint64_t state_hash(const std::byte* data, size_t bytes);

// One hash for a list: start with 0 and combine in order. settle(merge(so_far, next)) in the terms
// above, so it changes for certain when one of the two does, and the order matters. `next` may be a
// hash or any other number (dtype, count, ...).
uint64_t combine_hashes(uint64_t so_far, uint64_t next);

}  // namespace pccl::ring
