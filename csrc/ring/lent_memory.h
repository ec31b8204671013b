// Memory: the borrowed tensors of one operation, as the control plane gives them to the data plane.
// They stay borrowed until OpDrained. A plain value.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "csrc/base/dtype.h"

namespace pccl::ring {

// One span per block if blocks are separate tensors (all-gather, transfers). Otherwise a single
// span, which the schedule cuts into blocks (all-reduce, broadcast, an all-gather into one tensor).
struct Memory {
  std::vector<std::span<std::byte>> spans;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  int contributors = 1;  // number of reduced tensors; AVG divides by it
  bool save = true;      // keep the overwritten bytes until the outcome is known
};

}  // namespace pccl::ring
