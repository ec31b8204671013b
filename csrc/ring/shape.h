// Shape: what an operation does with which bytes: its pattern, and the sizes and ranks that its
// schedule depends on. A plain value.
//
// Patterns:
//  - All-reduce: round q sends block (rank - q) and receives block (rank - 1 - q), modulo N.
//  - All-gather: only the second half (round q sends block rank - q).
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

#include <cstdint>
#include <vector>

namespace pccl::ring {

enum class Pattern : uint8_t { kAllReduce, kAllGather, kBroadcast, kTransfer, kOneShot, kPairwise };

struct Shape {
  Pattern pattern = Pattern::kAllReduce;
  // Ring index (kAllReduce, kAllGather, kOneShot, kPairwise); distance from the root (kBroadcast);
  // 0 for the source and 1 for the destination (kTransfer).
  uint32_t rank = 0;
  uint32_t world = 1;  // number of ranks; 2 for kTransfer, kPairwise
  uint64_t element_bytes = 1;
  // Elements of the whole tensor; for kAllGather, elements of one rank's tensor.
  uint64_t count = 0;
  std::vector<uint64_t> block_bytes;  // kTransfer only: bytes of each block
  // A wan path between members: chunks are smaller and more of them are in flight.
  bool wan = false;
  // kPairwise: true keeps all overwritten bytes until the operation ends; false keeps them only
  // until they have been sent. Each member chooses for itself.
  bool restored = true;
};

}  // namespace pccl::ring
