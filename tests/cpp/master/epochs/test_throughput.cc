#include "master/epochs/throughput.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

Instant at_second(double seconds) {
  return {std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds))};
}

TEST(Throughput, NothingIsKnownBeforeTheFirstOperation) {
  Throughput throughput;
  throughput.count(at_second(1), 0, 0);
  EXPECT_EQ(throughput.rate(at_second(2)).over, Duration{0});
}

TEST(Throughput, IsAMeanSinceTheFirstOperation) {
  Throughput throughput;
  throughput.count(at_second(100), 5, 1000);
  throughput.count(at_second(108), 5, 1000);
  const auto rate = throughput.rate(at_second(110));
  EXPECT_DOUBLE_EQ(rate.operations, 1);
  EXPECT_DOUBLE_EQ(rate.bytes, 200);
  EXPECT_DOUBLE_EQ(to_seconds(rate.over), 10);
  EXPECT_DOUBLE_EQ(throughput.rate(at_second(100)).operations * 0, 0) << "no division by zero";
}

TEST(Throughput, ForgetsOperationsAfterAMinute) {
  Throughput throughput;
  for (int i = 0; i < 300; ++i) throughput.count(at_second(i), 2, 10);
  EXPECT_NEAR(throughput.rate(at_second(299.5)).operations, 2, 0.1);
  EXPECT_NEAR(throughput.rate(at_second(329.5)).operations, 1, 0.1);
  EXPECT_EQ(throughput.rate(at_second(400)).operations, 0);
}

}  // namespace
}  // namespace pccl::master
