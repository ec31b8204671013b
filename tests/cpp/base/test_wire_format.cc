#include "csrc/base/wire_format.h"

#include <gtest/gtest.h>

namespace pccl {
namespace {

TEST(WireFormat, HasTheNameThatPythonGivesIt) {
  EXPECT_EQ(text(WireFormat{}), "None");
  EXPECT_EQ(text(WireFormat{8, 256, 16}), "MinMax(bits=8, block=256, result_bits=16)");
  EXPECT_EQ(text(WireFormat{16, 0, 16}), "BFloat16()");
}

TEST(WireFormat, BitsOnTheWire) {
  EXPECT_EQ(bits_on_wire({}, 4), 32);
  EXPECT_EQ(bits_on_wire({16, 0, 16}, 4), 16);
  EXPECT_EQ(bits_on_wire({8, 256, 8}, 4), 8 + 24.0 / 256);
  EXPECT_EQ(bits_on_wire({8, 32, 16}, 4), (8 + 24.0 / 32 + 16) / 2);
  EXPECT_EQ(bits_on_wire({4, 64, 8}, 2), (4 + 24.0 / 64 + 8 + 24.0 / 256) / 2);
}

}  // namespace
}  // namespace pccl
