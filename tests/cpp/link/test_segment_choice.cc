#include "csrc/link/segment_choice.h"

#include <gtest/gtest.h>

namespace pccl::link {
namespace {

TEST(SegmentChoice, LeavesThemToTheSystem) {
  SegmentChoice choice;
  EXPECT_EQ(choice.segment(), 0u);
  EXPECT_FALSE(choice.arrived(1460));
  EXPECT_FALSE(choice.hopeless());
}

TEST(SegmentChoice, TakesTheNextSmaller) {
  SegmentChoice choice;
  choice.ended_without_progress(1460);
  EXPECT_EQ(choice.segment(), 1200u);
  choice.ended_without_progress(1460);
  EXPECT_EQ(choice.segment(), 1200u) << "an acceptor did not know it yet";
  choice.ended_without_progress(1188);  // 12 of the 1200 bytes are for the TCP timestamp
  EXPECT_EQ(choice.segment(), 536u);
  choice.ended_without_progress(1460);
  EXPECT_EQ(choice.segment(), 536u);
}

TEST(SegmentChoice, SaysOnceThatItHasHelped) {
  SegmentChoice choice;
  choice.ended_without_progress(1460);
  EXPECT_FALSE(choice.arrived(1460)) << "larger ones arrive";
  EXPECT_TRUE(choice.arrived(1188));
  EXPECT_FALSE(choice.arrived(1188));
  choice.ended_without_progress(1188);
  EXPECT_FALSE(choice.arrived(524)) << "once is enough";
}

TEST(SegmentChoice, HasNoHopeAfterEachSizeInARow) {
  SegmentChoice choice;
  choice.ended_without_progress(1460);
  choice.ended_without_progress(1188);
  EXPECT_FALSE(choice.hopeless());
  choice.ended_without_progress(524);
  EXPECT_TRUE(choice.hopeless());
}

TEST(SegmentChoice, NeedsTheSmallestToFailToo) {
  SegmentChoice choice;
  for (int left = 2 * protocol::kLinksWithoutProgressMax; left > 0; --left)
    choice.ended_without_progress(1460);
  EXPECT_FALSE(choice.hopeless());
  choice.ended_without_progress(524);
  EXPECT_TRUE(choice.hopeless());
}

TEST(SegmentChoice, CountsAnewAfterProgress) {
  SegmentChoice choice;
  choice.ended_without_progress(1460);
  choice.ended_without_progress(1188);
  choice.arrived(524);
  choice.ended_without_progress(524);
  EXPECT_FALSE(choice.hopeless());
}

}  // namespace
}  // namespace pccl::link
