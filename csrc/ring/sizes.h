// Sizes: how the tensor of an operation is cut into blocks, slices and chunks, and how many of them
// are in flight. A plain value: all members compute the same sizes from the same operation, except
// the depth on wan paths (Shape::scratch_bytes). Schedule gives the chunks their order; eager data
// and credit depend on standard_depth, which all members know.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/memory/encoding.h"
#include "csrc/ring/cut.h"
#include "csrc/ring/patterns.h"
#include "csrc/ring/shape.h"

namespace pccl::ring {

struct Sizes {
  static constexpr uint32_t kDepth = 4;  // the depth of a ring on local paths

  explicit Sizes(Shape all);

  // All blocks, laid end to end. REQUIRES: not kSliced and not kShared, whose tensor is in one
  // piece.
  uint32_t block_count() const;
  uint64_t block_bytes(uint32_t block) const;
  uint64_t block_offset(uint32_t block) const;
  uint64_t step_count() const;
  // kRing: the rounds that reduce come first, then those that gather.
  uint32_t reducing_rounds() const { return row.in_ring() && row.reduces ? shape.world - 1 : 0; }
  // Whether codes travel around the ring in place of elements: kAllReduce.
  bool recodes() const { return row.in_ring() && encoding && shape.world > 1; }
  // The number of scratch slots: for all rounds; for one step; for one slice of the direct pattern.
  uint32_t slots_of_rounds() const;
  uint32_t slots_per_step() const;
  uint32_t slots_per_slice() const;
  void check() const;  // asserts that the sizes agree with each other

  Shape shape;
  PatternRow row;
  uint64_t block_stride = 0;                   // kPerRank, kWhole: bytes of a block
  uint64_t total_bytes = 0;                    // bytes of all blocks
  memory::Encoding encoding, result_encoding;  // of contributions, and of results
  uint32_t grain_bytes = 64;                   // each chunk but the last has a multiple of this
  uint32_t chunk_bytes = 64;                   // in memory
  uint32_t slot_bytes = 64;                    // largest size of a chunk on the wire
  uint32_t last_chunk_bytes = 64;              // kSliced: bytes of a chunk in the last slice
  uint32_t depth = kDepth;                     // number of steps that scratch has room for
  uint32_t standard_depth = kDepth;  // `depth` without Shape::scratch_bytes; no member has less
  uint64_t rounds = 0;               // 0: nothing is sent at all
  uint64_t slices = 0;               // kListed: chunks of all blocks
  Cut cut;                           // kShared
  uint32_t first_round = 0;          // of a leg: the first round that it has
  // kListed: the byte offset of each block, and the step of its first chunk.
  std::vector<uint64_t> block_offsets;
  std::vector<uint64_t> first_steps;  // one entry per block, and the end

 private:
  void lay_out();
  void cut_blocks();
  void choose_depth();
  uint32_t depth_with(uint64_t scratch) const;
  uint32_t slot_bytes_of(uint32_t bytes) const;  // of a slot for chunks of this size
};

}  // namespace pccl::ring
