#include "master/diagnosis/standing_still.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

constexpr Instant moment(int number) { return {std::chrono::seconds(number)}; }

TEST(StandingStill, AnErrorStandsFromTheFirstLookAtIt) {
  StandingStill still;
  EXPECT_EQ(still.look(false, moment(1)), Duration{0});
  EXPECT_EQ(still.look(true, moment(15)), Duration{0});
  EXPECT_EQ(still.look(true, moment(30)), std::chrono::seconds(15));
  EXPECT_EQ(still.look(true, moment(45)), std::chrono::seconds(30));
  EXPECT_EQ(still.look(false, moment(60)), Duration{0});
  EXPECT_EQ(still.look(true, moment(75)), Duration{0}) << "another one";
}

TEST(StandingStill, AnErrorAfterALongGapIsANewOne) {
  StandingStill still;
  still.look(true, moment(0));
  EXPECT_EQ(still.look(true, moment(600)), std::chrono::minutes(10));
  EXPECT_EQ(still.look(true, moment(1201)), Duration{0});
}

}  // namespace
}  // namespace pccl::master
