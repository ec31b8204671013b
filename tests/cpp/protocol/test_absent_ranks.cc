#include "csrc/protocol/absent_ranks.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"

namespace pccl::protocol {
namespace {

TEST(AbsentRanks, AreASetOfRanks) {
  AbsentRanks ranks;
  EXPECT_FALSE(ranks.any());
  ranks.add(AbsentRanks::of(2, 3));
  ranks.add(AbsentRanks::of(0, 3));
  ranks.add(AbsentRanks::of(2, 3));
  EXPECT_TRUE(ranks.any());
  EXPECT_EQ(ranks.count(), 2u);
  EXPECT_TRUE(ranks.contains(0, 3));
  EXPECT_FALSE(ranks.contains(1, 3));
  EXPECT_TRUE(ranks.contains(2, 3));
}

TEST(AbsentRanks, CountFromTheLastRank) {
  EXPECT_EQ(AbsentRanks::of(2, 3).bits, 1u);
  EXPECT_EQ(AbsentRanks::of(0, 3).bits, 4u);
  EXPECT_EQ(AbsentRanks::of(64, 128).bits, uint64_t{1} << 63);
}

TEST(AbsentRanks, HaveRoomForTheLastRanksOnly) {
  EXPECT_TRUE(AbsentRanks::can_have(0, AbsentRanks::kMax));
  EXPECT_FALSE(AbsentRanks::can_have(0, AbsentRanks::kMax + 1));
  EXPECT_FALSE(AbsentRanks::can_have(63, kMembersMax));
  EXPECT_TRUE(AbsentRanks::can_have(64, kMembersMax));
  EXPECT_FALSE(AbsentRanks{~uint64_t{0}}.contains(63, kMembersMax));
  EXPECT_TRUE(AbsentRanks{~uint64_t{0}}.contains(64, kMembersMax));
}

TEST(AbsentRanks, FitAGroupThatHasTheseRanks) {
  EXPECT_TRUE(AbsentRanks{}.fit(0));
  EXPECT_FALSE(AbsentRanks{1}.fit(0));
  EXPECT_TRUE(AbsentRanks{7}.fit(3));
  EXPECT_FALSE(AbsentRanks{8}.fit(3));
  EXPECT_TRUE(AbsentRanks{~uint64_t{0}}.fit(64));
  EXPECT_TRUE(AbsentRanks{~uint64_t{0}}.fit(kMembersMax));
}

}  // namespace
}  // namespace pccl::protocol
