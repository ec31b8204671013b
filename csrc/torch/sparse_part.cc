#include "csrc/torch/sparse_part.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "csrc/protocol/limits.h"

namespace pccl::torch_layer {
namespace {

constexpr size_t kAlignment = 16;  // of the values: enough for the largest dtype

at::ScalarType dtype_in(const SparseHeader& header) {
  return static_cast<at::ScalarType>(header.dtype);
}

at::IntArrayRef sizes_in(const SparseHeader& header) {
  const auto given = static_cast<size_t>(std::max<int64_t>(header.dimensions, 0));
  return {header.sizes.data(), std::min(given, kSparseDimensionsMax)};
}

std::vector<int64_t> value_sizes(const SparseHeader& header) {
  const at::IntArrayRef sizes = sizes_in(header);
  std::vector<int64_t> out{header.entries};
  out.insert(out.end(), sizes.begin() + header.sparse_dimensions, sizes.end());
  return out;
}

size_t index_bytes(const SparseHeader& header) {
  const size_t bytes =
      static_cast<size_t>(header.sparse_dimensions * header.entries) * sizeof(int64_t);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The bytes of one entry: its index and its value.
size_t entry_bytes(const SparseHeader& header) {
  size_t bytes = c10::elementSize(dtype_in(header));
  for (const int64_t size : sizes_in(header).slice(static_cast<size_t>(header.sparse_dimensions)))
    bytes *= static_cast<size_t>(size);
  return bytes + static_cast<size_t>(header.sparse_dimensions) * sizeof(int64_t);
}

// Whether two headers describe the same tensor, apart from the number of its entries.
bool same_tensor(SparseHeader a, const SparseHeader& b) {
  a.entries = b.entries;
  return a == b;
}

// One number for each index tuple. The numbers have the same order as the index tuples.
at::Tensor keys_of(const at::Tensor& indices, at::IntArrayRef sizes) {
  at::Tensor keys = at::zeros({indices.size(1)}, at::kLong);
  for (int64_t dimension = 0; dimension < indices.size(0); ++dimension)
    keys.mul_(sizes[static_cast<size_t>(dimension)]).add_(indices[dimension]);
  return keys;
}

}  // namespace

SparseHeader header_of(const at::Tensor& tensor) {
  PCCL_ASSERT(tensor.is_sparse() && static_cast<size_t>(tensor.dim()) <= kSparseDimensionsMax);
  SparseHeader header;
  header.dtype = static_cast<int64_t>(tensor.scalar_type());
  header.entries = tensor._nnz();
  header.sparse_dimensions = tensor.sparse_dim();
  header.dimensions = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), header.sizes.begin());
  return header;
}

std::string text(const SparseHeader& header) {
  const bool known = header.dtype >= 0 && header.dtype < at::NumScalarTypes;
  const std::string dtype = known ? c10::toString(dtype_in(header)) : "an unknown dtype";
  return c10::str(dtype, " of sizes ", sizes_in(header), ", ", header.sparse_dimensions,
                  header.sparse_dimensions == 1 ? " sparse dimension" : " sparse dimensions");
}

Status check_headers(std::span<const SparseHeader> headers, size_t own) {
  for (size_t rank = 1; rank < headers.size(); ++rank) {
    if (same_tensor(headers[rank], headers[0])) continue;
    return {Code::kMismatch,
            "rank 0 gave " + text(headers[0]) + "; rank " + std::to_string(rank) + " gave " +
                text(headers[rank]) + ": all ranks need the same dtype, sizes and dimensions",
            {}};
  }
  // All headers equal ours, which describes a valid tensor.
  const auto most = static_cast<int64_t>(protocol::kTensorBytesMax / headers.size() /
                                         std::max<size_t>(entry_bytes(headers[own]), 1));
  for (size_t rank = 0; rank < headers.size(); ++rank) {
    if (headers[rank].entries >= 0 && headers[rank].entries < most) continue;
    return {Code::kMismatch,
            "rank " + std::to_string(rank) + " gave " + std::to_string(headers[rank].entries) +
                " entries, and at most " + std::to_string(most - 1) + " of this size can be sent",
            {}};
  }
  return {};
}

size_t part_bytes(const SparseHeader& header) {
  const size_t index = static_cast<size_t>(header.sparse_dimensions) * sizeof(int64_t);
  return index_bytes(header) + static_cast<size_t>(header.entries) * (entry_bytes(header) - index);
}

at::Tensor pack(const at::Tensor& tensor) {
  const at::Tensor single = tensor.coalesce();
  const SparseHeader header = header_of(single);
  const at::Tensor indices = single._indices().contiguous();
  const at::Tensor values = single._values().contiguous();
  at::Tensor part = at::empty({static_cast<int64_t>(part_bytes(header))}, at::kByte);
  auto* const bytes = part.mutable_data_ptr<uint8_t>();
  const size_t values_at = index_bytes(header);
  PCCL_ASSERT(indices.nbytes() <= values_at && values_at + values.nbytes() == part.nbytes());
  if (header.entries == 0) return part;
  std::memset(bytes, 0, values_at);
  std::memcpy(bytes, indices.const_data_ptr(), indices.nbytes());
  std::memcpy(bytes + values_at, values.const_data_ptr(), values.nbytes());
  return part;
}

at::Tensor sum_of_parts(std::span<const SparseHeader> headers, const Tensors& parts) {
  PCCL_ASSERT(!headers.empty() && headers.size() == parts.size());
  Tensors indices, values, keys;
  std::vector<int64_t> counts;
  for (size_t rank = 0; rank < headers.size(); ++rank) {
    const SparseHeader& header = headers[rank];
    PCCL_ASSERT(parts[rank].nbytes() == part_bytes(header));
    auto* const bytes = parts[rank].mutable_data_ptr<uint8_t>();
    indices.push_back(at::from_blob(bytes, {header.sparse_dimensions, header.entries}, at::kLong));
    values.push_back(
        at::from_blob(bytes + index_bytes(header), value_sizes(header), dtype_in(header)));
    at::_validate_sparse_coo_tensor_args(indices.back(), values.back(), sizes_in(header));
    keys.push_back(keys_of(indices.back(), sizes_in(header)));
    counts.push_back(header.entries);
  }
  const auto [distinct, places] = at::_unique(at::cat(keys), /*sorted=*/true, true);
  const SparseHeader& tensor = headers[0];
  const int64_t sparse = tensor.sparse_dimensions;
  std::vector<int64_t> sizes = value_sizes(tensor);
  sizes[0] = distinct.numel();
  const at::Tensor index = at::empty({sparse, distinct.numel()}, at::kLong);
  const at::Tensor sum = at::zeros(sizes, dtype_in(tensor));
  const std::vector<at::Tensor> place = places.split_with_sizes(counts);
  for (size_t rank = 0; rank < headers.size(); ++rank) {
    index.index_copy_(1, place[rank], indices[rank]);
    sum.index_add_(0, place[rank], values[rank]);
  }
  return at::_sparse_coo_tensor_with_dims_and_tensors(sparse, tensor.dimensions - sparse,
                                                      sizes_in(tensor), index, sum,
                                                      sum.options().layout(at::kSparse), true);
}

}  // namespace pccl::torch_layer
