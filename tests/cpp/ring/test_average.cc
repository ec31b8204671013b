// Averages of 16-bit floats through whole engines: each pattern tells the kernels which operand is
// a contribution and which is a partial result (csrc/memory/kernels.h).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/cpp/ring/world.h"

namespace pccl::ring {
namespace {

double bfloat16_at(const Bytes& bytes, size_t index) {
  float number = 0;
  std::memcpy(reinterpret_cast<std::byte*>(&number) + 2, &bytes[2 * index], 2);
  return number;
}

class Averages : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Engine, Averages, ::testing::Range(1u, 10u));

// The sum of these contributions is far beyond the largest bfloat16, their average is not. The
// patterns add them in different orders.
TEST_P(Averages, SumsOf16BitFloatsDoNotOverflow) {
  for (const Pattern pattern :
       {Pattern::kAllReduce, Pattern::kDirect, Pattern::kOneShot, Pattern::kPairwise}) {
    if (pattern == Pattern::kPairwise && GetParam() != 2) continue;
    World world(GetParam(), 11);
    const Call call{.key = {TagId{1}, 0},
                    .pattern = pattern,
                    .dtype = DType::kBfloat16,
                    .reduce = ReduceOp::kAvg,
                    .count = pattern == Pattern::kOneShot ? 16002u : 50002u,
                    .block_bytes = {},
                    .scale = 0x1.1p124f};
    world.post(call);
    world.settle();
    for (uint32_t rank = 0; rank < world.size(); ++rank) world.end(rank, call.key, true);
    const Bytes& first = world.result(0, call.key)[0];
    for (size_t index = 0; index < call.count; ++index) {
      double sum = 0;
      for (uint32_t rank = 0; rank < world.size(); ++rank)
        sum += bfloat16_at(world.at(rank, call.key).before[0], index);
      // All are positive: the error is at most N x 2^-8 of the average, and so 2^-8 of the sum.
      ASSERT_LE(std::fabs(bfloat16_at(first, index) - sum / world.size()), sum / 256);
    }
    for (uint32_t rank = 1; rank < world.size(); ++rank)
      EXPECT_TRUE(world.result(rank, call.key)[0] == first) << "rank " << rank;
    EXPECT_TRUE(world.failures.empty());
  }
}

}  // namespace
}  // namespace pccl::ring
