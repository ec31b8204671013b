#include "csrc/base/reducible.h"

#include <gtest/gtest.h>

#include <string>

namespace pccl {
namespace {

bool has(const std::string& message, const char* word) {
  return message.find(word) != std::string::npos;
}

TEST(Reducible, AsTheTypeAllows) {
  for (uint8_t d = 0; d < kDTypeCount; ++d) {
    for (uint8_t o = 0; o < kReduceOpCount; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      const bool bitwise = op >= ReduceOp::kBand;
      const bool allowed = dtype == DType::kBytes ? false
                           : is_floating(dtype)   ? !bitwise
                                                  : op != ReduceOp::kAvg;
      const Status status = check_reducible(dtype, op);
      EXPECT_EQ(status.ok(), allowed) << text(op) << " of " << text(dtype);
      if (allowed) continue;
      EXPECT_EQ(status.code, Code::kInvalidArgument);
      EXPECT_TRUE(has(status.message, text(dtype)) && has(status.message, text(op)))
          << status.message;
    }
  }
}

TEST(Reducible, RefusalsSayWhatToDoInstead) {
  EXPECT_TRUE(has(check_reducible(DType::kInt64, ReduceOp::kAvg).message, "use SUM and divide"));
  EXPECT_TRUE(has(check_reducible(DType::kBool, ReduceOp::kAvg).message, "allow SUM, PRODUCT"));
  EXPECT_TRUE(has(check_reducible(DType::kFloat32, ReduceOp::kBxor).message, "allow SUM, AVG"));
  EXPECT_TRUE(has(check_reducible(DType::kBytes, ReduceOp::kSum).message, "can be moved"));
}

}  // namespace
}  // namespace pccl
