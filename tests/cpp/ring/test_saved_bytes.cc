#include "csrc/ring/saved_bytes.h"

#include <gtest/gtest.h>

namespace pccl::ring {
namespace {

constexpr uint64_t kElements = 3 * 4096;

// A shape of three ranks, of bytes.
Shape shape_of(Pattern pattern, uint32_t rank = 0, uint32_t world = 3) {
  return {.pattern = pattern, .rank = rank, .world = world, .count = kElements, .block_bytes = {}};
}

// Memory that is only described: nothing reads or writes it.
class SavedBytesTest : public testing::Test {
 protected:
  // This many spans of kElements bytes, and as many inputs.
  Memory memory(size_t spans, size_t inputs = 0, bool save = true) {
    Memory memory;
    memory.spans.assign(spans, {&nothing_, kElements});
    memory.inputs.assign(inputs, {&nothing_, kElements});
    memory.save = save;
    return memory;
  }
  static uint64_t saved(const Shape& shape, const Memory& memory) {
    return saved_bytes(Schedule(shape), memory);
  }
  std::byte nothing_{};
};

TEST_F(SavedBytesTest, TheWholeTensorIsSavedIfDataArrives) {
  EXPECT_EQ(saved(shape_of(Pattern::kAllReduce), memory(1)), kElements);
  EXPECT_EQ(saved(shape_of(Pattern::kBroadcast, 1), memory(1)), kElements);
  EXPECT_EQ(saved(shape_of(Pattern::kBroadcast, 0), memory(1)), 0u) << "the root only sends";
  EXPECT_EQ(saved(shape_of(Pattern::kAllReduce, 0, 1), memory(1)), 0u) << "a world of one";
}

TEST_F(SavedBytesTest, NothingIsSavedWithoutTheWish) {
  EXPECT_EQ(saved(shape_of(Pattern::kAllReduce), memory(1, 0, false)), 0u);
  EXPECT_EQ(saved(shape_of(Pattern::kAllGather), memory(3, 1, false)), 0u);
}

TEST_F(SavedBytesTest, AnAllGatherOverwritesItsOwnBlockFromElsewhere) {
  EXPECT_EQ(saved(shape_of(Pattern::kAllGather), memory(3)), 3 * kElements);
  EXPECT_EQ(saved(shape_of(Pattern::kAllGather, 0, 1), memory(1)), 0u) << "in place";
  EXPECT_EQ(saved(shape_of(Pattern::kAllGather, 0, 1), memory(1, 1)), kElements);
}

TEST_F(SavedBytesTest, AReduceScatterSavesItsResultFromTheStartOfItsBlock) {
  const Schedule schedule(shape_of(Pattern::kReduceScatter, 1));
  const Memory described = memory(1, 3);
  EXPECT_EQ(saved_bytes(schedule, described), kElements);
  const Chunk written = schedule.written(schedule.written_count() - 1);
  EXPECT_EQ(written.block, 1u);
  EXPECT_GE(written.offset, kElements);
  EXPECT_EQ(saved_at(schedule, described, written), written.offset - kElements);
}

TEST_F(SavedBytesTest, AOneShotOperationInPlaceHasItsOldBytesInASlot) {
  EXPECT_EQ(saved(shape_of(Pattern::kOneShot), memory(1)), 0u);
  EXPECT_EQ(saved(shape_of(Pattern::kOneShotExchange), memory(3, 3)), 3 * kElements);
}

// The other parts of an exchange are operations of their own.
TEST_F(SavedBytesTest, AnExchangeSavesItsOwnPart) {
  Shape shape = shape_of(Pattern::kExchange);
  shape.count = 0;
  EXPECT_EQ(saved(shape, memory(3, 3)), kElements);
}

TEST_F(SavedBytesTest, ADirectAllReduceSavesAllButAlone) {
  Shape shape = shape_of(Pattern::kDirect);
  shape.shares = {256, 0, 0};
  EXPECT_EQ(saved(shape, memory(1)), kElements);
  shape.world = 1;
  shape.shares = {256};
  EXPECT_EQ(saved(shape, memory(1)), 0u);
}

TEST_F(SavedBytesTest, AnAbsentMemberAloneOverwritesItsTensorWithZeros) {
  Memory described = memory(1);
  described.absent = true;
  EXPECT_EQ(saved(shape_of(Pattern::kAllReduce, 0, 1), described), kElements);
}

TEST_F(SavedBytesTest, AnExchangeOfTwoKeepsTheOvertakenBytesInARingBuffer) {
  Shape shape = shape_of(Pattern::kPairwise, 0, 2);
  shape.wan = true;
  shape.count = uint64_t{1} << 30;
  EXPECT_EQ(saved(shape, memory(1)), shape.count) << "all of them, to put them back";
  shape.restored = false;
  const Schedule schedule(shape);
  const Memory described = memory(1, 0, false);
  const uint64_t row = saved_bytes(schedule, described);
  EXPECT_EQ(row, uint64_t{schedule.depth()} * schedule.chunk_bytes());
  EXPECT_LT(row, shape.count);
  const Chunk later = schedule.chunk_received(schedule.depth() + 2);
  EXPECT_EQ(saved_at(schedule, described, later), later.offset - row);
}

}  // namespace
}  // namespace pccl::ring
