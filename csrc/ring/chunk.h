// Chunk: one piece of a tensor that travels as one frame. Action: the effect of a landing chunk on
// the bytes that were there. Plain values.
#pragma once

#include <cstdint>

#include "csrc/memory/encoding.h"

namespace pccl::ring {

// The action of a landing chunk on the bytes that were there.
//  - kAccumulate: lands in a scratch slot; the tensor is added to it there.
//  - kFinish: lands in scratch and is combined with the tensor, which then holds the result.
//  - kStore: final bytes, which land in the tensor itself. Codes land in scratch and are decoded;
//    if they continue around the ring, they land in a scratch slot and wait there.
//  - kGather: lands in the scratch slot that is reserved for its sender, and is used later.
enum class Action : uint8_t { kAccumulate, kFinish, kStore, kGather };

// One chunk of the schedule, as one rank sends or receives it. `id` counts chunks slice by slice;
// it is the same at both ends of the transfer. `bytes` may be 0: the frame still travels, so that
// both ends count the same chunks.
struct Chunk {
  uint64_t id = 0;
  uint64_t step = 0;
  uint32_t slice = 0;
  uint16_t round = 0;
  uint32_t block = 0;
  uint64_t offset = 0;      // in memory, in bytes from the start of all blocks, laid end to end
  uint32_t bytes = 0;       // bytes in memory
  uint32_t wire_bytes = 0;  // bytes of the payload of its frame
  uint32_t slot = 0;        // kGather: the slot of the scratch where it lands
  memory::Encoding encoding = {};
  bool operator==(const Chunk&) const = default;
};

}  // namespace pccl::ring
