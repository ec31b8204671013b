#include "master/epochs/scalar_history.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

constexpr Instant after_seconds(int seconds) { return {std::chrono::seconds(seconds)}; }

TEST(ScalarHistory, ReportsWithinAStepGiveOnePointWithTheirMean) {
  ScalarHistory history;
  history.add(after_seconds(10), "loss", 2.0);
  history.add(after_seconds(11), "loss", 4.0);
  history.add(after_seconds(12), "loss", 1.0);
  const auto& points = history.all().at("loss");
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].mean, 3.0);
  EXPECT_EQ(points[0].at, after_seconds(10));
  EXPECT_EQ(points[1].mean, 1.0);
}

TEST(ScalarHistory, TheLastPointsAreKept) {
  ScalarHistory history;
  for (int i = 0; i < 1000; ++i) history.add(after_seconds(2 * i), "step", i);
  history.check();
  const auto& points = history.all().at("step");
  ASSERT_EQ(points.size(), ScalarHistory::kPoints);
  EXPECT_EQ(points.front().mean, 1000 - 512);
  EXPECT_EQ(points.back().mean, 999);
}

TEST(ScalarHistory, ANewNameWaitsUntilAnotherOneIsIdle) {
  ScalarHistory history;
  for (int i = 0; i < 8; ++i) history.add(after_seconds(i), std::to_string(i), 0);
  history.add(after_seconds(59), "new", 1);
  EXPECT_FALSE(history.all().contains("new"));
  history.add(after_seconds(61), "new", 1);
  EXPECT_TRUE(history.all().contains("new"));
  EXPECT_FALSE(history.all().contains("0"));
  history.check();
}

}  // namespace
}  // namespace pccl::master
