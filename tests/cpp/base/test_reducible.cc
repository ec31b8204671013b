#include "csrc/base/reducible.h"

#include <gtest/gtest.h>

#include <string>

namespace pccl {
namespace {

bool contains(const std::string& message, const char* word) {
  return message.find(word) != std::string::npos;
}

TEST(Reducible, AsTheTypeAllows) {
  for (uint8_t d = 0; d < kDTypeCount; ++d) {
    for (uint8_t o = 0; o < kReduceOpCount; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      const bool bitwise = op >= ReduceOp::kBand;
      const bool allowed = dtype == DType::kBytes  ? false
                           : is_floating(dtype)    ? !bitwise
                           : dtype == DType::kBool ? op != ReduceOp::kAvg
                                                   : true;
      const Status status = check_reducible(dtype, op);
      EXPECT_EQ(status.ok(), allowed) << text(op) << " of " << text(dtype);
      if (allowed) continue;
      EXPECT_EQ(status.code, Code::kInvalidArgument);
      EXPECT_TRUE(contains(status.message, text(dtype)) && contains(status.message, text(op)))
          << status.message;
    }
  }
}

TEST(Reducible, RefusalsSayWhatToDoInstead) {
  EXPECT_TRUE(contains(check_reducible(DType::kBool, ReduceOp::kAvg).message, "bool allows SUM"));
  EXPECT_TRUE(contains(check_reducible(DType::kBool, ReduceOp::kAvg).message, "a copy in float32"));
  EXPECT_TRUE(
      contains(check_reducible(DType::kFloat32, ReduceOp::kBxor).message, "allow SUM, AVG"));
  EXPECT_TRUE(contains(check_reducible(DType::kBytes, ReduceOp::kSum).message, "can be moved"));
}

Status quantizable(const WireFormat& format, DType dtype = DType::kFloat32,
                   ReduceOp op = ReduceOp::kSum) {
  return check_quantizable(format, dtype, op);
}

TEST(Quantizable, SumsOfFloatsOfUpTo32Bits) {
  for (const WireFormat format :
       {WireFormat{8, 256, 8}, WireFormat{4, 64, 16}, WireFormat{16, 0, 16}}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
      EXPECT_TRUE(quantizable(format, dtype, ReduceOp::kSum).ok());
      EXPECT_TRUE(quantizable(format, dtype, ReduceOp::kAvg).ok());
    }
    EXPECT_NE(quantizable(format, DType::kInt32).message.find("float32, float16 and bfloat16"),
              std::string::npos);
    EXPECT_FALSE(quantizable(format, DType::kFloat64).ok());
    EXPECT_NE(quantizable(format, DType::kFloat32, ReduceOp::kMax).message.find("SUM and AVG"),
              std::string::npos);
  }
  EXPECT_TRUE(quantizable({}, DType::kInt32, ReduceOp::kMax).ok()) << "nothing is quantized";
}

TEST(Quantizable, NoOtherFormatThanThoseThereAre) {
  for (const WireFormat format :
       {WireFormat{7, 256, 8}, WireFormat{8, 100, 8}, WireFormat{8, 16, 8}, WireFormat{8, 2048, 8},
        WireFormat{8, 0, 8}, WireFormat{8, 256, 0}, WireFormat{8, 256, 4}, WireFormat{16, 256, 16},
        WireFormat{16, 0, 8}}) {
    EXPECT_EQ(quantizable(format).code, Code::kInvalidArgument) << text(format);
  }
}

}  // namespace
}  // namespace pccl
