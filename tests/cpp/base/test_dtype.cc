#include "csrc/base/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pccl {
namespace {

bool has(const std::string& message, const char* word) {
  return message.find(word) != std::string::npos;
}

TEST(DType, NumbersAreTheWireFormatAndNeverChange) {
  EXPECT_EQ(static_cast<int>(DType::kUint8), 0);
  EXPECT_EQ(static_cast<int>(DType::kInt64), 4);
  EXPECT_EQ(static_cast<int>(DType::kUint64), 7);
  EXPECT_EQ(static_cast<int>(DType::kFloat16), 8);
  EXPECT_EQ(static_cast<int>(DType::kFloat64), 11);
  EXPECT_EQ(static_cast<int>(DType::kBool), 12);
  EXPECT_EQ(static_cast<int>(DType::kBytes), kDTypeCount - 1);
  EXPECT_EQ(static_cast<int>(ReduceOp::kSum), 0);
  EXPECT_EQ(static_cast<int>(ReduceOp::kAvg), 1);
  EXPECT_EQ(static_cast<int>(ReduceOp::kMax), 4);
  EXPECT_EQ(static_cast<int>(ReduceOp::kBxor), kReduceOpCount - 1);
}

TEST(DType, EveryTypeHasASizeAndANameOfItsOwn) {
  std::set<std::string> names;
  for (uint8_t i = 0; i < kDTypeCount; ++i) {
    const std::string name = text(static_cast<DType>(i));
    EXPECT_TRUE(names.insert(name).second) << name;
    const size_t bits = element_bytes(static_cast<DType>(i)) * 8;
    const bool byte_sized = name == "bool" || name == "bytes";
    EXPECT_TRUE(byte_sized ? bits == 8 : name.ends_with(std::to_string(bits)))
        << name << " " << bits;
    EXPECT_EQ(is_floating(static_cast<DType>(i)), has(name, "float")) << name;
  }
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_STREQ(text(static_cast<DType>(kDTypeCount)), "unknown");
}

TEST(DType, EveryReduceOpHasTorchsName) {
  const char* names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"};
  for (uint8_t i = 0; i < kReduceOpCount; ++i)
    EXPECT_STREQ(text(static_cast<ReduceOp>(i)), names[i]);
  EXPECT_STREQ(text(static_cast<ReduceOp>(kReduceOpCount)), "unknown");
}

TEST(DTypeDeathTest, SizeOfAnUnknownTypeIsOurBug) {
  EXPECT_DEATH(element_bytes(static_cast<DType>(200)), "");
}

TEST(DType, FloatsOfUpTo32BitsCanBeQuantized) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16})
    EXPECT_TRUE(is_quantizable(dtype));
  for (const DType dtype : {DType::kFloat64, DType::kInt8, DType::kBool, DType::kBytes})
    EXPECT_FALSE(is_quantizable(dtype));
}

}  // namespace
}  // namespace pccl
