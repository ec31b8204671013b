// patterns: one row per pattern, with all properties that the schedule and the buffers depend on.
// These read the properties in the row and never test for a pattern. A new pattern is a new row.
//
//  - All-reduce: 2(N-1) rounds. Round q sends block (rank - q) modulo N, and receives block
//    (rank - 1 - q) modulo N.
//  - All-gather: N-1 rounds. Round q sends block (rank - q) modulo N, and receives block
//    (rank - 1 - q) modulo N.
//  - Broadcast: goes around the ring from the root, in one round, one block.
//  - Transfer (send/recv, shared state): goes from its source to its destination, in one round, one
//    block after another.
//  - One-shot all-reduce (kOneShot, one_shot.h): does not go around the ring. It has no chunks,
//    only one scratch slot for the whole tensor of each member.
//  - Pairwise exchange (kPairwise) of two members on a wan path: does not go around the ring. In
//    one round each member sends its whole tensor and reduces the whole tensor of the other. That
//    moves as many bytes as two rounds of halves, but crosses the path once instead of twice, and
//    neither direction waits for the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pccl::ring {

enum class Pattern : uint8_t { kAllReduce, kAllGather, kBroadcast, kTransfer, kOneShot, kPairwise };

// The way that the bytes take.
//  - kRing: around the ring in pipelined rounds; every rank sends and receives.
//  - kChain: from rank 0 to the last rank, in one round.
//  - kBothWays: each of two ranks sends all that it has, in one round.
//  - kContributions: each rank sends its whole tensor to each other, outside the schedule.
enum class Travel : uint8_t { kRing, kChain, kBothWays, kContributions };

// How the memory is cut into blocks.
//  - kSliced: one tensor; each slice of it has a block for each rank.
//  - kPerRank: a block of Shape::count elements for each rank.
//  - kWhole: one tensor, which is one block.
//  - kListed: the blocks of Shape::block_bytes.
enum class Layout : uint8_t { kSliced, kPerRank, kWhole, kListed };

struct PatternRow {
  Pattern pattern;
  Travel travel;
  Layout layout;
  bool reduces;  // what arrives is combined with what is here
  bool gathers;  // kRing: final bytes go around
  bool eager;    // on wan paths, chunks may leave before downstream has granted credit
};

inline constexpr std::array<PatternRow, 6> kPatterns{{
    {Pattern::kAllReduce, Travel::kRing, Layout::kSliced, true, true, true},
    {Pattern::kAllGather, Travel::kRing, Layout::kPerRank, false, true, true},
    {Pattern::kBroadcast, Travel::kChain, Layout::kWhole, false, false, true},
    {Pattern::kTransfer, Travel::kChain, Layout::kListed, false, false, false},
    {Pattern::kOneShot, Travel::kContributions, Layout::kWhole, true, false, false},
    {Pattern::kPairwise, Travel::kBothWays, Layout::kWhole, true, false, true},
}};

// REQUIRES: `pattern` is one of the list above.
constexpr const PatternRow& row_of(Pattern pattern) {
  return kPatterns[static_cast<size_t>(pattern)];
}

namespace internal {
constexpr bool rows_are_in_order() {
  for (size_t index = 0; index < kPatterns.size(); ++index) {
    if (static_cast<size_t>(kPatterns[index].pattern) != index) return false;
  }
  return true;
}
static_assert(rows_are_in_order());
}  // namespace internal

}  // namespace pccl::ring
