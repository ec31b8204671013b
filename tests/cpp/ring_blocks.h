// The blocks of an all-reduce around a ring, as its schedule cuts the tensor.
#pragma once

#include <vector>

#include "csrc/ring/schedule.h"
#include "tests/cpp/quantized_sum.h"

namespace pccl {

// In the first `world` rounds a rank receives each block of a slice once.
inline std::vector<RingBlock> ring_blocks(const ring::Schedule& schedule) {
  const ring::Shape& shape = schedule.shape();
  std::vector<RingBlock> blocks;
  for (uint64_t id = 0; id < schedule.chunk_count(); ++id) {
    const ring::Chunk chunk = schedule.chunk_received(id);
    if (chunk.round >= shape.world || chunk.bytes == 0) continue;
    blocks.push_back(
        {chunk.offset / shape.element_bytes, chunk.bytes / shape.element_bytes, chunk.block});
  }
  return blocks;
}

}  // namespace pccl
