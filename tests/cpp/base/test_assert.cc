#include "csrc/base/assert.h"

#include <gtest/gtest.h>

namespace pccl {
namespace {

TEST(Assert, GoesOnWhenItHolds) { PCCL_ASSERT(1 + 1 == 2); }

TEST(AssertDeathTest, NamesTheConditionAndThePlace) {
  EXPECT_DEATH(PCCL_ASSERT(1 + 1 == 3), "assertion failed: 1 \\+ 1 == 3 .*test_assert.cc:");
}

}  // namespace
}  // namespace pccl
