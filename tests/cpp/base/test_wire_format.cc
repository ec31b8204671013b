#include "csrc/base/wire_format.h"

#include <gtest/gtest.h>

namespace pccl {
namespace {

TEST(WireFormat, HasTheNameThatPythonGivesIt) {
  EXPECT_EQ(text(WireFormat{}), "None");
  EXPECT_EQ(text(WireFormat{8, 256, 16}), "MinMax(bits=8, block=256, result_bits=16)");
  EXPECT_EQ(text(WireFormat{16, 0, 16}), "BFloat16()");
}

}  // namespace
}  // namespace pccl
