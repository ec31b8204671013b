// patterns: one row per pattern, with all properties that the schedule and the buffers depend on.
// Schedule and buffers ask the row and never test for a pattern. A new pattern is a new row.
//
//  - All-reduce: 2(N-1) rounds. Round q sends block (rank - q) modulo N, and receives block
//    (rank - 1 - q) modulo N.
//  - All-gather: N-1 rounds. Round q sends block (rank - q) modulo N, and receives block
//    (rank - 1 - q) modulo N.
//  - Broadcast: the tensor goes around the ring from the root, as one block in one round.
//  - Transfer (send/recv, shared state): the blocks go from the source to the destination in one
//    round, one block after another.
//  - Reduce-scatter: the first N-1 rounds of an all-reduce, with the blocks numbered so that the
//    last block that a rank receives is its own.
//  - Reduce: a partial sum goes along the ring to the root, as one block in one round. Each rank
//    adds its tensor to it.
//  - One-shot (kOneShot, kOneShotExchange): for small tensors, not around the ring. Each member
//    sends its parts directly to the other members. A part is the only chunk of a leg (op_table.h)
//    and lands in a scratch slot. When all parts are here, they are reduced in rank order, or
//    stored. So the data makes one hop instead of up to 2(N-1), and all members get the same bits.
//  - Exchange (kExchange): for large parts that are sent directly and stored as they are:
//    all-to-all, gather and scatter. Each part from one member to another is an operation of its
//    own in the ring, a broadcast of two ranks (op_table.h).
//  - Pairwise exchange (kPairwise): an all-reduce of two members on a wan path, or a quantized
//    all-reduce of two members. In one round each member sends its whole tensor and reduces the
//    whole tensor of the other. That moves as many bytes as two rounds of halves, but the data
//    crosses the path once instead of twice, and neither direction waits for the other.
//  - Direct all-reduce (kDirect): each member owns a share of each slice. In round 0 each owner
//    gets a contribution to its share from every other member, and adds the contributions in rank
//    order. In round 1 the owner sends the result to all others. So each byte makes two hops, and
//    the bits of the result depend on neither the ring nor the shares. The data from one member to
//    another one is a leg: an operation of its own in the ring (op_table.h, core.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pccl::ring {

enum class Pattern : uint8_t {
  kAllReduce,
  kAllGather,
  kBroadcast,
  kTransfer,
  kOneShot,
  kPairwise,
  kReduceScatter,
  kReduce,
  kOneShotExchange,
  kExchange,
  kDirect
};

// How the bytes travel.
//  - kRing: around the ring in pipelined rounds; every rank sends and receives.
//  - kChain: from rank 0 to the last rank, in one round.
//  - kBothWays: each of two ranks sends its whole tensor to the other, in one round.
//  - kContributions: each rank sends a part directly to each other rank, on a leg of two ranks.
//  - kParts: each rank sends a part directly to each other rank, as an operation of two ranks that
//    has memory of its own.
//  - kOwners: from each rank directly to each owner of a share and back, on legs of two ranks.
enum class Travel : uint8_t { kRing, kChain, kBothWays, kContributions, kParts, kOwners };

// How the memory is cut into blocks.
//  - kSliced: one tensor; each slice of it has a block for each rank.
//  - kShared: one tensor, as with kSliced, but the sizes of the blocks are in proportion to
//    Shape::shares (cut.h).
//  - kPerRank: a block of Shape::count elements for each rank.
//  - kWhole: one tensor, which is one block. In a one-shot operation, the block has the size of the
//    largest part.
//  - kListed: the blocks of Shape::block_bytes.
enum class Layout : uint8_t { kSliced, kShared, kPerRank, kWhole, kListed };

struct PatternRow {
  Pattern pattern;
  Travel travel;
  Layout layout;
  bool reduces;  // arriving data is combined with local data
  bool gathers;  // kRing, kOwners: final bytes go to all
  bool eager;    // on wan paths, chunks may leave before downstream has granted credit

  constexpr bool in_ring() const { return travel == Travel::kRing; }
  constexpr bool in_chain() const { return travel == Travel::kChain; }
  constexpr bool by_owners() const { return travel == Travel::kOwners; }
  // Its bytes travel as legs that share its memory. Contributions land in scratch first.
  constexpr bool in_legs() const { return by_owners() || is_one_shot(); }
  constexpr bool in_parts() const { return travel == Travel::kParts; }
  // Each leg has one chunk, a contribution, which may leave without credit.
  constexpr bool is_one_shot() const { return travel == Travel::kContributions; }
  // The memory has a part for each member: kContributions and kParts.
  constexpr bool has_parts() const { return is_one_shot() || in_parts(); }
  // A rank adds its tensor to the data that it passes on.
  constexpr bool adds_on() const { return in_chain() && reduces; }
  // A landing chunk may overwrite a chunk that has not been sent yet.
  constexpr bool overtakes() const { return travel == Travel::kBothWays; }
  // kReduceScatter: the result is one block, apart from the tensor. Its chunks are the chunks of
  // this rank's block.
  constexpr bool scatters() const { return in_ring() && reduces && !gathers; }
  constexpr bool is_sliced() const { return layout == Layout::kSliced; }
  constexpr bool is_shared() const { return layout == Layout::kShared; }
  constexpr bool is_per_rank() const { return layout == Layout::kPerRank; }
  constexpr bool is_listed() const { return layout == Layout::kListed; }
};

inline constexpr std::array<PatternRow, 11> kPatterns{{
    {Pattern::kAllReduce, Travel::kRing, Layout::kSliced, true, true, true},
    {Pattern::kAllGather, Travel::kRing, Layout::kPerRank, false, true, true},
    {Pattern::kBroadcast, Travel::kChain, Layout::kWhole, false, false, true},
    {Pattern::kTransfer, Travel::kChain, Layout::kListed, false, false, false},
    {Pattern::kOneShot, Travel::kContributions, Layout::kWhole, true, false, false},
    {Pattern::kPairwise, Travel::kBothWays, Layout::kWhole, true, false, true},
    {Pattern::kReduceScatter, Travel::kRing, Layout::kPerRank, true, false, true},
    {Pattern::kReduce, Travel::kChain, Layout::kWhole, true, false, true},
    {Pattern::kOneShotExchange, Travel::kContributions, Layout::kWhole, false, false, false},
    {Pattern::kExchange, Travel::kParts, Layout::kWhole, false, false, false},
    {Pattern::kDirect, Travel::kOwners, Layout::kShared, true, true, true},
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
