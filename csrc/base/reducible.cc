#include "csrc/base/reducible.h"

#include <string>

namespace pccl {
namespace {

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
}

}  // namespace

Status check_reducible(DType dtype, ReduceOp op) {
  const auto refused = [&](const std::string& what_to_do) {
    return Status{Code::kInvalidArgument, std::string(text(op)) + " of " + text(dtype) +
                                              " is not supported: " + what_to_do};
  };
  if (dtype == DType::kBytes) {
    return refused(
        "a tensor of this type can be moved (broadcast, gather, send, ...) but not reduced; "
        "reduce a copy in an integer type or in float16, bfloat16, float32 or float64");
  }
  if (is_floating(dtype)) {
    if (!is_bitwise(op)) return {};
    return refused(
        "floats allow SUM, AVG, PRODUCT, MIN and MAX; for bits, pass a view of the tensor as "
        "integers");
  }
  if (op != ReduceOp::kAvg) return {};
  return refused(
      "integers and bool allow SUM, PRODUCT, MIN, MAX, BAND, BOR and BXOR; "
      "for a mean, use SUM and divide, or reduce a copy in float32 or float64");
}

}  // namespace pccl
