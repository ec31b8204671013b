#include "master/runs/host_exit.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

using std::chrono::seconds;

constexpr Duration kPatience = seconds(60);

Instant instant_at(int64_t second) { return Instant{seconds(second)}; }

TEST(HostExit, WaitsForNothingBeforeTheProcessWantsToExit) {
  HostExit exit;
  exit.look(false, false, instant_at(1));
  EXPECT_FALSE(exit.over());
  EXPECT_EQ(exit.deadline(), std::nullopt);
}

TEST(HostExit, IsOverWhenNoPeerIsHere) {
  HostExit exit;
  exit.begin(kPatience, instant_at(1));
  exit.look(true, true, instant_at(1));
  EXPECT_FALSE(exit.over());
  exit.look(false, false, instant_at(2));
  EXPECT_TRUE(exit.over());
  EXPECT_EQ(exit.deadline(), std::nullopt);
}

TEST(HostExit, IsOverWhenNoPeerHasMadeACallForTheWholePatience) {
  HostExit exit;
  exit.begin(kPatience, instant_at(1));
  exit.look(true, false, instant_at(60));
  EXPECT_FALSE(exit.over());
  EXPECT_EQ(exit.deadline(), instant_at(61));
  exit.look(true, false, instant_at(61));
  EXPECT_TRUE(exit.over());
}

TEST(HostExit, ACallOfAPeerStartsThePatienceAnew) {
  HostExit exit;
  exit.begin(kPatience, instant_at(1));
  exit.look(true, true, instant_at(50));
  EXPECT_EQ(exit.deadline(), instant_at(110));
  exit.look(true, false, instant_at(109));
  EXPECT_FALSE(exit.over());
  exit.look(true, false, instant_at(110));
  EXPECT_TRUE(exit.over());
}

TEST(HostExit, ASecondWishChangesNothing) {
  HostExit exit;
  exit.begin(kPatience, instant_at(1));
  exit.begin(2 * kPatience, instant_at(50));
  EXPECT_EQ(exit.deadline(), instant_at(61));
}

TEST(HostExit, StaysOver) {
  HostExit exit;
  exit.begin(kPatience, instant_at(1));
  exit.look(false, false, instant_at(2));
  exit.look(true, true, instant_at(3));
  EXPECT_TRUE(exit.over());
}

}  // namespace
}  // namespace pccl::master
