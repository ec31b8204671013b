// The result of a quantized all-reduce, computed over whole tensors at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "csrc/memory/encoding.h"
#include "csrc/memory/quantize.h"

namespace pccl {

// The keys of a stochastic format, by rank and of the result, and the element of the tensor with
// which the contributions begin.
struct RandomKeys {
  std::vector<uint64_t> own;
  uint64_t result = 0, first = 0;
};

// `contributions` are those of all ranks, in rank order: of one size. `pairwise`: of two ranks that
// exchange them. `absent`: so many of them are zeros and do not count in an average.
inline std::vector<std::byte> quantized_sum(
    const WireFormat& format, DType dtype, ReduceOp op,
    const std::vector<std::vector<std::byte>>& contributions, bool pairwise, size_t absent = 0,
    const RandomKeys& keys = {}) {
  using memory::whole;
  const size_t elements = contributions[0].size() / element_bytes(dtype);
  const auto there_and_back = [&](const memory::Quantization& how, DType from_type,
                                  const std::byte* from, DType to_type, std::byte* to,
                                  uint64_t key) {
    std::vector<std::byte> codes(memory::quantized_bytes(how, elements));
    memory::quantize(how, from_type, from, whole(elements), codes.data(),
                     {format.stochastic, key, keys.first});
    memory::dequantize(how, to_type, codes.data(), whole(elements), to);
  };
  std::vector<float> sum(elements), one(elements);
  auto* const sum_bytes = reinterpret_cast<std::byte*>(sum.data());
  for (size_t rank = 0; rank < contributions.size(); ++rank) {
    there_and_back(*memory::encoding_of_contributions(format), dtype, contributions[rank].data(),
                   DType::kFloat32, reinterpret_cast<std::byte*>(one.data()),
                   format.stochastic ? keys.own.at(rank) : 0);
    for (size_t at = 0; at < elements; ++at) sum[at] = rank == 0 ? one[at] : sum[at] + one[at];
  }
  if (op == ReduceOp::kAvg) {
    const size_t divisor = std::max<size_t>(contributions.size() - absent, 1);
    for (float& value : sum) value /= static_cast<float>(divisor);
  }
  std::vector<std::byte> result(contributions[0].size());
  if (pairwise) {  // both have both contributions
    memory::round_to(dtype, sum.data(), elements, result.data());
  } else {
    there_and_back(*memory::encoding_of_result(format), DType::kFloat32, sum_bytes, dtype,
                   result.data(), keys.result);
  }
  return result;
}

}  // namespace pccl
