// The check of expf as host code: what it counts, not the exponential function of a GPU.

#include "cuda/expf_check.cu"

#include <gtest/gtest.h>

namespace pccl::cuda {
namespace {

pccl_cuda_expf_counts counts_of(uint64_t first, uint64_t count) {
  twin::device = {};
  twin::device.blocks_max = 3;
  pccl_cuda_expf_counts counts{7, 7, 7, 7, 7};
  EXPECT_EQ(pccl_cuda_expf_check(first, count, &counts, 0, nullptr), 0);
  return counts;
}

TEST(ExpfCheck, SortsResultsByKind) {
  const auto nan = counts_of(0x7F800001u, 1000);  // floats that are no numbers
  EXPECT_EQ(nan.nan, 1000u);
  EXPECT_EQ(nan.inf + nan.finite, 0u);
  const auto edge = counts_of(0x42B17217u - 499, 1000);  // the largest x with a finite result, ...
  EXPECT_EQ(edge.finite, 500u);                          // ... is the 500th of these
  EXPECT_EQ(edge.inf, 500u);
  EXPECT_EQ(edge.nan, 0u);
}

TEST(ExpfCheck, AddsUpTheBits) {
  const auto ones = counts_of(0, 5);  // exp of a tiny x is 1, 0x3F800000
  EXPECT_EQ(ones.bits_sum, 5 * uint64_t{0x3F800000});
  EXPECT_EQ(ones.bits_xor, 0x3F800000u);
  const auto last = counts_of(0xFFFFFFFFu, 1);  // a NaN
  EXPECT_EQ(last.nan, 1u);
}

}  // namespace
}  // namespace pccl::cuda
