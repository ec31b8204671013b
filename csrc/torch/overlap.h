// overlap: checks whether tensors of one operation share memory. Outputs that share memory would be
// filled in no certain order, and chunks would land in memory that is still being sent to other
// ranks, so each call would give another value. Every operation with several tensors therefore
// calls check_apart() before it writes or sends anything. Any thread may call these functions. They
// do not read or write the memory itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

namespace pccl::torch_layer {

// The only overlap of an input and an output that an in-place collective allows. The larger tensor
// has `parts` equal parts, and the smaller one is part number `part`, counted from 0, with the same
// elements in the same order. If `parts` is 1, the tensors are the same memory.
struct InPlace {
  size_t input, output;
  int64_t part, parts;
};

// Raises ValueError if two outputs share memory, or if an input and an output share memory in a way
// that `in_place` does not allow. Inputs may share memory with each other. REQUIRES: all tensors
// are in a BorrowedTensors, which checks each by itself and gives lazy copies their memory.
void check_apart(const char* call, const std::vector<at::Tensor>& outputs,
                 const std::vector<at::Tensor>& inputs = {},
                 std::span<const InPlace> in_place = {});

// Whether two tensors share a byte. False if a limited number of steps cannot decide it.
bool share_memory(const at::Tensor& one, const at::Tensor& other);

// Whether two elements of this tensor share memory.
bool shares_with_itself(const at::Tensor& tensor);

}  // namespace pccl::torch_layer
