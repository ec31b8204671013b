#include "csrc/base/assert.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace pccl {
namespace {

TEST(Assert, GoesOnWhenItHolds) { PCCL_ASSERT(1 + 1 == 2); }

TEST(AssertDeathTest, NamesTheConditionAndThePlace) {
  EXPECT_DEATH(PCCL_ASSERT(1 + 1 == 3), "assertion failed: 1 \\+ 1 == 3 .*test_assert.cc:");
}

TEST(AssertDeathTest, AHookAddsHowToRepeatTheFailure) {
  on_assertion_failed = [] { std::fputs("seed 7\n", stderr); };
  EXPECT_DEATH(PCCL_ASSERT(1 + 1 == 3), "assertion failed: 1 \\+ 1 == 3 .*\n.*seed 7");
  on_assertion_failed = nullptr;
}

}  // namespace
}  // namespace pccl
