#include "master/epochs/one_shot_limit.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

constexpr uint32_t kWanted = protocol::kOneShotBytesMax;

TEST(OneShotLimit, ASmallGroupHasTheWantedLimit) {
  for (const size_t members : {1, 2, 8}) {
    EXPECT_EQ(one_shot_limit(members, kWanted), kWanted) << members;
    EXPECT_EQ(one_shot_limit(members, 1000), 1000u) << members;
    EXPECT_EQ(one_shot_limit(members, 0), 0u) << members;
  }
}

TEST(OneShotLimit, AllTensorsOfALargerGroupFitIntoTheScratch) {
  EXPECT_LT(one_shot_limit(9, kWanted), kWanted);
  for (size_t members = 9; members <= protocol::kOneShotMembersMax; ++members) {
    const size_t bytes = one_shot_limit(members, kWanted);
    EXPECT_LE(members * bytes, kOneShotScratchBytes) << members;
    EXPECT_GT(members * (bytes + 1), kOneShotScratchBytes) << members;
  }
  EXPECT_EQ(one_shot_limit(32, 1000), 1000u);
}

TEST(OneShotLimit, AGroupWithTooManyMembersHasNoOneShotOperations) {
  EXPECT_GT(one_shot_limit(protocol::kOneShotMembersMax, kWanted), 0u);
  EXPECT_EQ(one_shot_limit(protocol::kOneShotMembersMax + 1, kWanted), 0u);
}

}  // namespace
}  // namespace pccl::master
