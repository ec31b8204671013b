// Quantized all-reduces: every member holds what whole tensors give, encoded at once and added in
// rank order.
#include <gtest/gtest.h>

#include <vector>

#include "csrc/base/cpu.h"
#include "tests/cpp/ring/expected.h"
#include "tests/cpp/ring/shares.h"
#include "tests/cpp/ring/world.h"

namespace pccl::ring {
namespace {

const std::vector<WireFormat> kFormats = {{8, 256, 8},       {8, 32, 16},     {8, 1024, 8},
                                          {4, 64, 8},        {4, 512, 16},    {16, 0, 16},
                                          {8, 256, 8, true}, {4, 64, 8, true}};

Call call_of(const World& world, const WireFormat& format, uint64_t count) {
  return {.key = {TagId{1}, 0},
          .pattern = world.size() == 2 ? Pattern::kPairwise : Pattern::kDirect,
          .count = count,
          .block_bytes = {},
          .scale = 1 / 7e6f,
          .format = format};
}

class Quantized : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Quantized, ::testing::Range(2u, 7u));

TEST_P(Quantized, EveryFormatTypeAndSizeIsTheSumOfTheDecodedContributions) {
  uint64_t seed = GetParam();
  for (const WireFormat& format : kFormats) {
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
      for (const uint64_t count : {0u, 1u, 255u, 257u, 20'011u, 300'007u}) {
        if (count > 100'000 && dtype != DType::kFloat32) continue;
        World world(GetParam(), ++seed);
        world.wan = seed % 2 == 0;
        Call call = call_of(world, format, count);
        call.dtype = dtype;
        call.reduce = seed % 3 == 0 ? ReduceOp::kAvg : ReduceOp::kSum;
        if (seed % 5 < 3) call.shares = random_shares(world.size(), world.random);
        call.save = seed % 7 != 0;
        world.post(call);
        world.settle();
        commit(world, call);
        expect_quiet(world);
      }
    }
  }
}

TEST_P(Quantized, EachWidthOfVectorsGivesTheSameBits) {
  for (const WireFormat& format : kFormats) {
    std::vector<Bytes> results;
    for (const int width : {0, 1, 2}) {
      World world(GetParam(), 3);
      const Call call = call_of(world, format, 5'003);
      allow_wide_vectors(width > 0);
      allow_widest_vectors(width > 1);
      world.post(call);
      world.settle();
      world.end(0, call.key, true);
      allow_wide_vectors(true);
      allow_widest_vectors(true);
      results.push_back(world.result(0, call.key)[0]);
    }
    EXPECT_TRUE(results[0] == results[1]);
    EXPECT_TRUE(results[0] == results[2]);
  }
}

// An owner may be ahead of the member that takes its results most slowly, but not without end. No
// order of arrival leads to a standstill.
TEST_P(Quantized, MoreSlicesThanSlots) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    World world(GetParam(), seed, 100'000);
    world.wan = seed % 2 == 0;
    Call call = call_of(world, {4, 64, 8}, 2'000'003);
    if (seed > 2) call.shares = random_shares(world.size(), world.random);
    world.post(call);
    world.settle();
    commit(world, call);
    expect_quiet(world);
  }
}

TEST_P(Quantized, BytesOnTheWireAndOfTensorsAreCountedApart) {
  const uint32_t world_size = GetParam();
  World world(world_size, 1);
  const Call call = call_of(world, {8, 256, 8}, 1'000'000);
  world.post(call);
  world.settle();
  commit(world, call);
  EngineCounters sum;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    const EngineCounters one = world.engine(rank).counters();
    sum.bytes_sent += one.bytes_sent;
    sum.bytes_received += one.bytes_received;
    sum.tensor_bytes_sent += one.tensor_bytes_sent;
    sum.tensor_bytes_received += one.tensor_bytes_received;
  }
  const uint64_t hops = world_size == 2 ? 2 : 2 * (world_size - 1);
  EXPECT_EQ(sum.tensor_bytes_sent, hops * 4'000'000);
  EXPECT_EQ(sum.tensor_bytes_received, sum.tensor_bytes_sent);
  EXPECT_EQ(sum.bytes_received, sum.bytes_sent);
  EXPECT_GT(sum.bytes_sent, hops * 1'000'000);
  EXPECT_LT(sum.bytes_sent, hops * 1'013'000);
}

}  // namespace
}  // namespace pccl::ring
