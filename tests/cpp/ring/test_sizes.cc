// Sizes: how a tensor is cut. test_schedule.cc checks the chunks that follow.
#include "csrc/ring/sizes.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"

namespace pccl::ring {
namespace {

Shape shape_with(Pattern pattern, uint32_t world, uint64_t count) {
  return {
      .pattern = pattern, .world = world, .element_bytes = 4, .count = count, .block_bytes = {}};
}

TEST(Sizes, RoundsOfEachWayOfTravel) {
  EXPECT_EQ(Sizes(shape_with(Pattern::kAllReduce, 4, 1000)).rounds, 6u);
  EXPECT_EQ(Sizes(shape_with(Pattern::kReduceScatter, 4, 1000)).rounds, 3u);
  EXPECT_EQ(Sizes(shape_with(Pattern::kAllGather, 4, 1000)).rounds, 3u);
  EXPECT_EQ(Sizes(shape_with(Pattern::kBroadcast, 4, 1000)).rounds, 1u);
  EXPECT_EQ(Sizes(shape_with(Pattern::kAllReduce, 1, 1000)).rounds, 0u);
  EXPECT_EQ(Sizes(shape_with(Pattern::kAllReduce, 4, 0)).rounds, 0u);
}

TEST(Sizes, BlocksPerRankLieEndToEnd) {
  const Sizes sizes(shape_with(Pattern::kAllGather, 3, 100));
  EXPECT_EQ(sizes.total_bytes, 1200u);
  EXPECT_EQ(sizes.block_count(), 3u);
  EXPECT_EQ(sizes.block_bytes(2), 400u);
  EXPECT_EQ(sizes.block_offset(2), 800u);
}

TEST(Sizes, ListedBlocksHaveTheirOwnSizes) {
  Shape listed = shape_with(Pattern::kTransfer, 2, 0);
  listed.block_bytes = {10, 0, 200000};
  const Sizes sizes(listed);
  EXPECT_EQ(sizes.block_count(), 3u);
  EXPECT_EQ(sizes.block_offset(2), 10u);
  EXPECT_EQ(sizes.first_steps, (std::vector<uint64_t>{0, 1, 2, sizes.slices}));
  sizes.check();
}

TEST(Sizes, OneSliceHasAChunkForEachRank) {
  for (const uint64_t count : {1u, 100u, 100'000u, 10'000'000u}) {
    const Sizes sizes(shape_with(Pattern::kAllReduce, 3, count));
    EXPECT_LE(sizes.chunk_bytes, protocol::kChunkBytesMax);
    EXPECT_GE(sizes.slices * 3 * sizes.chunk_bytes, count * 4);
    sizes.check();
  }
}

// Eager data follows from the standard depth, and all members must agree about it.
TEST(Sizes, MoreScratchOnAWanPathMakesOnlyTheOwnDepthLarger) {
  Shape wan = shape_with(Pattern::kAllReduce, 4, 100'000'000);
  wan.wan = true;
  const Sizes standard(wan);
  wan.scratch_bytes = uint64_t{256} << 20;
  const Sizes more(wan);
  EXPECT_GT(more.depth, standard.depth);
  EXPECT_EQ(more.standard_depth, standard.depth);
  EXPECT_EQ(more.chunk_bytes, standard.chunk_bytes);
}

}  // namespace
}  // namespace pccl::ring
