#include "csrc/peer/state/piece_layout.h"

#include <gtest/gtest.h>

namespace pccl::peer {
namespace {

using Segments = std::vector<PieceLayout::Segment>;

std::vector<protocol::StateEntry> entries(const std::vector<int64_t>& sizes) {
  std::vector<protocol::StateEntry> out;
  for (const int64_t size : sizes)
    out.push_back({"k" + std::to_string(out.size()), DType::kUint8, {size}, 0});
  return out;
}

TEST(PieceLayout, SmallEntriesInARowAreOnePiece) {
  const PieceLayout layout(entries({10, 20, 70, 1}), {0, 1, 2, 3}, 100);
  ASSERT_EQ(layout.count(), 2u);
  EXPECT_EQ(layout.segments(0), (Segments{{0, 0, 10}, {1, 0, 20}, {2, 0, 70}}));
  EXPECT_EQ(layout.segments(1), (Segments{{3, 0, 1}}));
  EXPECT_EQ(layout.bytes(0), 100u);
  EXPECT_FALSE(layout.is_part(0));
  EXPECT_EQ(layout.part_count(), 0u);
  EXPECT_EQ(layout.pieces_of({1, 3}), (std::vector<uint32_t>{0, 1}));
}

TEST(PieceLayout, LargeEntriesAreCutAndOnlyTheKeysOfThePlanCount) {
  const PieceLayout layout(entries({5, 250, 7, 100}), {0, 1, 3}, 100);
  ASSERT_EQ(layout.count(), 5u);
  EXPECT_EQ(layout.segments(0), (Segments{{0, 0, 5}}));
  EXPECT_EQ(layout.segments(3), (Segments{{1, 200, 50}}));
  EXPECT_EQ(layout.segments(4), (Segments{{3, 0, 100}})) << "as large as a piece, so it is whole";
  EXPECT_TRUE(layout.is_part(1) && layout.is_part(3) && !layout.is_part(4));
  EXPECT_EQ(layout.part_index(3), 2u);
  EXPECT_EQ(layout.part_count(), 3u);
  EXPECT_EQ(layout.piece_at(1, 199), 2u);
  EXPECT_EQ(layout.pieces_of({1}), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(layout.pieces_of({2}), (std::vector<uint32_t>{})) << "nobody lacks it";
  EXPECT_EQ(layout.total_bytes(), 355u);
}

TEST(PieceLayout, PiecesGrowUntilTheyAreFewEnough) {
  const PieceLayout layout(entries({int64_t{1} << 40}), {0}, protocol::kStateUnitBytes);
  EXPECT_EQ(layout.piece_bytes(), uint64_t{16} << 20);
  EXPECT_EQ(layout.count(), protocol::kStatePiecesMax);
}

}  // namespace
}  // namespace pccl::peer
