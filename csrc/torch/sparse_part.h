// sparse_part: the contribution of one rank to an all-reduce of sparse tensors, as bytes. A rank
// first sends a SparseHeader, which has one size on all ranks, and then the indices and the values.
// Pure functions of their arguments. Any thread may call them.
// A header comes from another process, so check_headers() looks at every field of it before its
// sizes are used. Indices outside of the tensor are refused by sum_of_parts().
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/torch/borrowed_tensors.h"

namespace pccl::torch_layer {

inline constexpr size_t kSparseDimensionsMax = 32;

// The description of a sparse tensor. Plain data, the same on every machine.
struct SparseHeader {
  int64_t dtype = 0;    // an at::ScalarType
  int64_t entries = 0;  // number of index tuples
  int64_t sparse_dimensions = 0;
  int64_t dimensions = 0;
  std::array<int64_t, kSparseDimensionsMax> sizes{};

  bool operator==(const SparseHeader&) const = default;
};
static_assert(sizeof(SparseHeader) == (4 + kSparseDimensionsMax) * sizeof(int64_t));

// REQUIRES: a COO tensor of at most kSparseDimensionsMax dimensions.
SparseHeader header_of(const at::Tensor& tensor);
// "float32 of sizes [4, 3], 1 sparse dimension"
std::string text(const SparseHeader& header);

// Checks the headers of all ranks, which are in rank order; the header of this rank is at `own`.
// kMismatch if two tensors cannot be added, or if a rank has too many entries; the text is the same
// on all ranks.
Status check_headers(std::span<const SparseHeader> headers, size_t own);

// The size of the part that a header describes. REQUIRES: check_headers() was ok.
size_t part_bytes(const SparseHeader& header);
// The part of one rank, as bytes: the indices, in ascending order without repetition, and then the
// values.
at::Tensor pack(const at::Tensor& tensor);
// The sum of the parts, added in rank order. Each index occurs once in it. The same parts give the
// same bits. Raises if an index is outside of the tensor.
at::Tensor sum_of_parts(std::span<const SparseHeader> headers, const Tensors& parts);

}  // namespace pccl::torch_layer
