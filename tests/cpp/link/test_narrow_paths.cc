#include "csrc/link/narrow_paths.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"

namespace pccl::link {
namespace {

constexpr PeerId kNarrow{3}, kWide{4};

TEST(NarrowPaths, TheNarrowestPathLimitsAcceptedConnections) {
  NarrowPaths paths;
  EXPECT_EQ(paths.news(), std::nullopt);
  paths.ended_without_progress(kNarrow, 1460);
  const uint32_t first = paths.segment(kNarrow);
  EXPECT_EQ(first, protocol::kSegments.front());
  EXPECT_EQ(paths.segment(kWide), 0u);
  EXPECT_EQ(paths.news(), first);
  EXPECT_EQ(paths.news(), std::nullopt);
  paths.ended_without_progress(kWide, first);
  EXPECT_LT(paths.segment(kWide), first);
  EXPECT_EQ(paths.news(), paths.segment(kWide));
  paths.check();
  EXPECT_FALSE(paths.forget(kWide)) << "no limit has helped";
  EXPECT_EQ(paths.news(), first);
  EXPECT_TRUE(paths.arrived(kNarrow, first));
  EXPECT_FALSE(paths.arrived(kWide, first)) << "it has no limit";
  EXPECT_TRUE(paths.forget(kNarrow));
  EXPECT_EQ(paths.news(), 0u);
  paths.check();
}

TEST(NarrowPaths, APathIsGivenUpWhenNoSizeHelps) {
  NarrowPaths paths;
  for (int link = 0; link < protocol::kLinksWithoutProgressMax; ++link) {
    EXPECT_FALSE(paths.given_up(kNarrow));
    paths.ended_without_progress(kNarrow, protocol::kSegments.back());
  }
  EXPECT_TRUE(paths.given_up(kNarrow));
  EXPECT_FALSE(paths.given_up(kWide));
}

}  // namespace
}  // namespace pccl::link
