#include "csrc/base/clock.h"

#include <gtest/gtest.h>

namespace pccl {
namespace {

TEST(Clock, DurationsHaveTheUnitThatReadsBest) {
  EXPECT_EQ(text(std::chrono::seconds(10)), "10 s");
  EXPECT_EQ(text(std::chrono::milliseconds(2500)), "2.5 s");
  EXPECT_EQ(text(std::chrono::milliseconds(250)), "250 ms");
}

}  // namespace
}  // namespace pccl
