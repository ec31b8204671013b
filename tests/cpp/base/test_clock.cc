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

TEST(Clock, ATimeIsIso8601InUtc) {
  EXPECT_EQ(iso_text(std::chrono::milliseconds(0)), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(iso_text(std::chrono::milliseconds(1785501296789)), "2026-07-31T12:34:56.789Z");
  EXPECT_EQ(iso_text(std::chrono::milliseconds(951782400001)), "2000-02-29T00:00:00.001Z");
}

}  // namespace
}  // namespace pccl
