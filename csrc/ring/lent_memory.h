// Memory: the borrowed tensors of one operation, as the control plane gives them to the data plane.
// They stay borrowed until OpDrained. A plain value.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "csrc/base/dtype.h"

namespace pccl::ring {

// The operation writes to `spans`. An operation in place also reads `spans`, and its `inputs` is
// empty.
//  - One tensor (all-reduce, broadcast, reduce): one span.
//  - All-gather: a span per block. `inputs`: the block of this rank, if it is not in `spans`.
//  - Transfers: a span per block, or one span with all of them.
//  - Reduce-scatter: one span with the result. `inputs`: a span per block. The span of the result
//    may be exactly the span of this rank's block.
//  - A one-shot operation that is not in place, and an exchange: by rank, a span for the part from
//    each member. `inputs`: by rank, a span for the part to each member. An empty part may have any
//    span. This member's part for itself is copied. A one-shot operation that reduces has one span,
//    for the result.
struct Memory {
  std::vector<std::span<std::byte>> spans;
  std::vector<std::span<const std::byte>> inputs = {};
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  int contributors = 1;  // number of reduced tensors; AVG divides by it
  bool save = true;      // keep the overwritten bytes until the outcome is known
  // Memory that is not borrowed. The operation keeps it alive until the operation ends. Several
  // blocks may share this memory if their content does not matter.
  std::shared_ptr<const void> own = {};
  // This member is absent: it contributes zeros instead of its memory.
  bool absent = false;

  bool in_place() const { return inputs.empty(); }
};

}  // namespace pccl::ring
