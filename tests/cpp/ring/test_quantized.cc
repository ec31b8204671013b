// Quantized all-reduces: every member holds what whole tensors give, encoded at once and added in
// rank order; or, around a ring, what whole blocks give, encoded again at each hop.
#include <gtest/gtest.h>

#include <functional>
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

// The result at one member is the same with vectors of each width.
void each_width_gives_the_same(uint32_t size, const std::function<Call(const World&)>& make) {
  std::vector<Bytes> results;
  for (const int width : {0, 1, 2}) {
    World world(size, 3);
    const Call call = make(world);
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

TEST_P(Quantized, EachWidthOfVectorsGivesTheSameBits) {
  for (const WireFormat& format : kFormats)
    each_width_gives_the_same(GetParam(),
                              [&](const World& world) { return call_of(world, format, 5'003); });
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

// ---- Around a ring ----

const std::vector<WireFormat> kRingFormats = {{8, 256, 8}, {8, 32, 16},       {8, 1024, 8},
                                              {16, 0, 16}, {8, 256, 8, true}, {8, 64, 16, true}};

Call around(const WireFormat& format, uint64_t count) {
  return {
      .key = {TagId{1}, 0}, .count = count, .block_bytes = {}, .scale = 1 / 7e6f, .format = format};
}

TEST_P(Quantized, EachHopOfARingEncodesThePartialSum) {
  uint64_t seed = GetParam();
  for (const WireFormat& format : kRingFormats) {
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
      for (const uint64_t count : {0u, 1u, 255u, 257u, 20'011u, 1'000'007u}) {
        if (count > 100'000 && dtype != DType::kFloat32) continue;
        World world(GetParam(), ++seed, 100'000);
        world.wan = seed % 2 == 0;
        Call call = around(format, count);
        call.dtype = dtype;
        call.reduce = seed % 3 == 0 ? ReduceOp::kAvg : ReduceOp::kSum;
        call.save = seed % 7 != 0;
        world.post(call);
        world.settle();
        commit(world, call);
        expect_quiet(world);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Quantized, EachWidthOfVectorsGivesTheSameBitsAroundTheRing) {
  for (const WireFormat& format : kRingFormats)
    each_width_gives_the_same(GetParam(), [&](const World&) { return around(format, 5'003); });
}

TEST_P(Quantized, BytesOnTheWireAreCountedAroundTheRing) {
  const uint32_t size = GetParam();
  World world(size, 1);
  const Call call = around({8, 256, 8}, 1'000'000);
  world.post(call);
  world.settle();
  commit(world, call);
  for (uint32_t rank = 0; rank < size; ++rank) {
    const EngineCounters one = world.engine(rank).counters();
    const double blocks = 2.0 * (size - 1) / size;  // tensors that pass a rank
    EXPECT_NEAR(static_cast<double>(one.tensor_bytes_sent), blocks * 4e6, 0.01 * 4e6);
    EXPECT_NEAR(static_cast<double>(one.bytes_sent), blocks * (1e6 + 3e6 / 256), 0.01 * 1e6);
    EXPECT_NEAR(static_cast<double>(one.bytes_received), blocks * (1e6 + 3e6 / 256), 0.01 * 1e6);
  }
}

// An attempt in vain leaves the tensor as it was, and the same call again has the same bits.
TEST_P(Quantized, TheSameBitsAroundTheRingAfterAnAttemptInVain) {
  const Call call = around({8, 256, 8, true}, 300'007);
  Bytes expected_bits;
  for (const bool in_vain : {false, true}) {
    World world(GetParam(), 8, 30'000);
    world.post(call);
    for (uint64_t move = 0; in_vain && move < 60 * GetParam() && world.move(); ++move) {
    }
    for (uint32_t rank = 0; in_vain && rank < world.size(); ++rank) world.again(rank, call.key, 0);
    for (uint32_t rank = 0; in_vain && rank < world.size(); ++rank) {
      world.renew(rank, Epoch{2});
      world.post_again(rank, call.key);
    }
    world.settle();
    commit(world, call);
    expect_quiet(world);
    const Bytes& result = world.result(0, call.key)[0];
    EXPECT_TRUE(!in_vain || result == expected_bits);
    expected_bits = result;
  }
}

}  // namespace
}  // namespace pccl::ring
