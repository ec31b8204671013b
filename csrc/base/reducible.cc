#include "csrc/base/reducible.h"

#include <bit>
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
  if (dtype != DType::kBool || op != ReduceOp::kAvg) return {};
  return refused(
      "bool allows SUM, PRODUCT, MIN, MAX, BAND, BOR and BXOR; for the share of the ranks with "
      "true, reduce a copy in float32");
}

Status check_quantizable(const WireFormat& format, DType dtype, ReduceOp op) {
  const auto refused = [&](const std::string& why) {
    return Status{Code::kInvalidArgument, "quantize=" + text(format) + " " + why, {}};
  };
  if (!format.quantizes()) return {};
  const bool blocks = std::has_single_bit(format.block) && format.block >= WireFormat::kBlockMin &&
                      format.block <= WireFormat::kBlockMax;
  const bool min_max = (format.bits == 8 || format.bits == 4) && blocks &&
                       (format.result_bits == 8 || format.result_bits == 16);
  const bool bfloat16 = format == WireFormat{16, 0, 16};
  if (!min_max && !bfloat16) {
    return refused("is no format: bits are 8 or 4, a block is a power of two from " +
                   std::to_string(WireFormat::kBlockMin) + " to " +
                   std::to_string(WireFormat::kBlockMax) + ", and result_bits are 8 or 16");
  }
  if (!is_quantizable(dtype)) {
    return refused(std::string("is for float32, float16 and bfloat16, not for ") + text(dtype));
  }
  if (op != ReduceOp::kSum && op != ReduceOp::kAvg)
    return refused(std::string("is for SUM and AVG, not for ") + text(op));
  return {};
}

}  // namespace pccl
