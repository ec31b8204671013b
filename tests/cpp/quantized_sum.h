// The result of a quantized all-reduce, computed over whole tensors at once, or over whole blocks
// of a ring.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "csrc/memory/encoding.h"
#include "csrc/memory/quantize.h"

namespace pccl {

// The keys of a stochastic format, by rank and of the result, and the element of the tensor with
// which the contributions begin. `partial`: of the sums that a rank passes on around a ring.
struct RandomKeys {
  std::vector<uint64_t> own;
  uint64_t result = 0, first = 0;
  std::vector<uint64_t> partial = {};
};

// Writes what the codes of a row of elements decode to.
inline void there_and_back(const memory::Quantization& how, DType from_type, const std::byte* from,
                           DType to_type, std::byte* to, size_t elements,
                           const memory::Rounding& rounding) {
  std::vector<std::byte> codes(memory::quantized_bytes(how, elements));
  memory::quantize(how, from_type, from, memory::whole(elements), codes.data(), rounding);
  memory::dequantize(how, to_type, codes.data(), memory::whole(elements), to);
}

inline void divide(std::vector<float>& sum, size_t contributors, size_t absent) {
  const auto divisor = static_cast<float>(std::max<size_t>(contributors - absent, 1));
  for (float& value : sum) value /= divisor;
}

// `contributions` are those of all ranks, in rank order: of one size. `pairwise`: of two ranks that
// exchange them. `absent`: so many of them are zeros and do not count in an average.
inline std::vector<std::byte> quantized_sum(
    const WireFormat& format, DType dtype, ReduceOp op,
    const std::vector<std::vector<std::byte>>& contributions, bool pairwise, size_t absent = 0,
    const RandomKeys& keys = {}) {
  const size_t elements = contributions[0].size() / element_bytes(dtype);
  std::vector<float> sum(elements), one(elements);
  auto* const sum_bytes = reinterpret_cast<std::byte*>(sum.data());
  for (size_t rank = 0; rank < contributions.size(); ++rank) {
    there_and_back(*memory::encoding_of_contributions(format), dtype, contributions[rank].data(),
                   DType::kFloat32, reinterpret_cast<std::byte*>(one.data()), elements,
                   {format.stochastic, format.stochastic ? keys.own.at(rank) : 0, keys.first});
    for (size_t at = 0; at < elements; ++at) sum[at] = rank == 0 ? one[at] : sum[at] + one[at];
  }
  if (op == ReduceOp::kAvg) divide(sum, contributions.size(), absent);
  std::vector<std::byte> result(contributions[0].size());
  if (pairwise) {  // both have both contributions
    memory::round_to(dtype, sum.data(), elements, result.data());
  } else {
    there_and_back(*memory::encoding_of_result(format), DType::kFloat32, sum_bytes, dtype,
                   result.data(), elements, {format.stochastic, keys.result, keys.first});
  }
  return result;
}

// Elements that go around a ring together. `start` sends them first, so it is the rank before it
// that has their sum.
struct RingBlock {
  size_t first = 0, count = 0;
  size_t start = 0;
};

// Ranks are ring indices. The blocks cover the tensor. Each but the last begins a block of codes.
inline std::vector<std::byte> quantized_ring_sum(
    const WireFormat& format, DType dtype, ReduceOp op,
    const std::vector<std::vector<std::byte>>& contributions, const std::vector<RingBlock>& blocks,
    size_t absent, const RandomKeys& keys) {
  const size_t world = contributions.size(), width = element_bytes(dtype);
  const memory::Quantization how = *memory::encoding_of_contributions(format);
  std::vector<std::byte> result(contributions[0].size());
  for (const RingBlock& block : blocks) {
    const auto rounding = [&](uint64_t key) {
      return memory::Rounding{format.stochastic, key, keys.first + block.first};
    };
    std::vector<float> sum(block.count), one(block.count);
    auto* const sum_bytes = reinterpret_cast<std::byte*>(sum.data());
    for (size_t hop = 0; hop < world; ++hop) {
      const size_t rank = (block.start + hop) % world;
      there_and_back(how, dtype, contributions[rank].data() + block.first * width, DType::kFloat32,
                     reinterpret_cast<std::byte*>(one.data()), block.count,
                     rounding(keys.own.at(rank)));
      for (size_t at = 0; at < block.count; ++at) sum[at] = hop == 0 ? one[at] : sum[at] + one[at];
      if (hop == 0 || hop + 1 == world) continue;
      there_and_back(how, DType::kFloat32, sum_bytes, DType::kFloat32, sum_bytes, block.count,
                     rounding(keys.partial.at(rank)));
    }
    if (op == ReduceOp::kAvg) divide(sum, world, absent);
    there_and_back(*memory::encoding_of_result(format), DType::kFloat32, sum_bytes, dtype,
                   result.data() + block.first * width, block.count, rounding(keys.result));
  }
  return result;
}

}  // namespace pccl
