#include "csrc/link/segment_choice.h"

#include <gtest/gtest.h>

namespace pccl::link {
namespace {

TEST(SegmentChoice, LeavesThemToTheSystem) {
  SegmentChoice controller;
  EXPECT_EQ(controller.segment(), 0u);
  EXPECT_FALSE(controller.arrived(1460));
  EXPECT_FALSE(controller.given_up());
}

TEST(SegmentChoice, TakesTheNextSmaller) {
  SegmentChoice controller;
  controller.ended_without_progress(1460);
  EXPECT_EQ(controller.segment(), 1200u);
  controller.ended_without_progress(1460);
  EXPECT_EQ(controller.segment(), 1200u) << "an acceptor did not know it yet";
  controller.ended_without_progress(1188);  // 12 of the 1200 bytes are for the TCP timestamp
  EXPECT_EQ(controller.segment(), 536u);
  controller.ended_without_progress(1460);
  EXPECT_EQ(controller.segment(), 536u);
}

TEST(SegmentChoice, SaysOnceThatItHasHelped) {
  SegmentChoice controller;
  controller.ended_without_progress(1460);
  EXPECT_FALSE(controller.arrived(1460)) << "larger ones arrive";
  EXPECT_TRUE(controller.arrived(1188));
  EXPECT_FALSE(controller.arrived(1188));
  controller.ended_without_progress(1188);
  EXPECT_FALSE(controller.arrived(524)) << "once is enough";
}

TEST(SegmentChoice, HasNoHopeAfterEachSizeInARow) {
  SegmentChoice controller;
  controller.ended_without_progress(1460);
  controller.ended_without_progress(1188);
  EXPECT_FALSE(controller.given_up());
  controller.ended_without_progress(524);
  EXPECT_TRUE(controller.given_up());
}

TEST(SegmentChoice, NeedsTheSmallestToFailToo) {
  SegmentChoice controller;
  for (int left = 2 * protocol::kLinksWithoutProgressMax; left > 0; --left)
    controller.ended_without_progress(1460);
  EXPECT_FALSE(controller.given_up());
  controller.ended_without_progress(524);
  EXPECT_TRUE(controller.given_up());
}

TEST(SegmentChoice, CountsAnewAfterProgress) {
  SegmentChoice controller;
  controller.ended_without_progress(1460);
  controller.ended_without_progress(1188);
  controller.arrived(524);
  controller.ended_without_progress(524);
  EXPECT_FALSE(controller.given_up());
}

}  // namespace
}  // namespace pccl::link
