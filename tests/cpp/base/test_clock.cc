#include "csrc/base/clock.h"

#include <gtest/gtest.h>

namespace pccl {
namespace {

TEST(Clock, DurationsHaveTheUnitThatReadsBest) {
  EXPECT_EQ(text(std::chrono::seconds(10)), "10 s");
  EXPECT_EQ(text(std::chrono::milliseconds(2500)), "2.5 s");
  EXPECT_EQ(text(std::chrono::milliseconds(250)), "250 ms");
  EXPECT_EQ(text(std::chrono::milliseconds(8402)), "8.4 s");
  EXPECT_EQ(text(std::chrono::milliseconds(9960)), "10 s");
  EXPECT_EQ(text(std::chrono::seconds(599)), "599 s");
  EXPECT_EQ(text(std::chrono::seconds(1799)), "30 min");
  EXPECT_EQ(text(std::chrono::hours(1000)), "1000 h");
}

}  // namespace
}  // namespace pccl
