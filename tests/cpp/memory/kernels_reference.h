// kernels_reference: the arithmetic of csrc/memory/kernels.h, one element at a time and as bits,
// without regard to speed. The tests compare the kernels with it. 16-bit floats are decoded and
// encoded by their definition, in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "csrc/base/dtype.h"
#include "csrc/memory/kernels.h"

namespace pccl::memory::reference {

// A 16-bit float format. The number of mantissa bits identifies it: 10 for float16, 7 for bfloat16.
struct Format {
  int mantissa;
  int exponent_min;  // of the smallest normal number
  int exponent_max;  // of the largest number
};
constexpr Format kHalf{10, -14, 15};
constexpr Format kBrain{7, -126, 127};

inline float decode(Format format, uint16_t bits) {
  const int field = (bits & 0x7fff) >> format.mantissa;
  const int fraction = bits & ((1 << format.mantissa) - 1);
  double value = 0;
  if (field == format.exponent_max - format.exponent_min + 2) {
    value = fraction == 0 ? INFINITY : NAN;
  } else if (field == 0) {
    value = std::ldexp(fraction, format.exponent_min - format.mantissa);
  } else {
    value = std::ldexp(fraction + (1 << format.mantissa),
                       format.exponent_min + field - 1 - format.mantissa);
  }
  return static_cast<float>((bits & 0x8000) != 0 ? -value : value);
}

inline uint16_t encode(Format format, float value) {
  const int infinity = (format.exponent_max - format.exponent_min + 2) << format.mantissa;
  if (std::isnan(value)) return static_cast<uint16_t>(infinity | (1 << (format.mantissa - 1)));
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | infinity);
  const int exponent = std::max(std::ilogb(magnitude), format.exponent_min);
  const double steps =
      std::nearbyint(std::ldexp(magnitude, format.mantissa - exponent));  // ties to even
  // The exponent field counts from 1 for normal numbers. Their steps include the implicit 1; the
  // steps of subnormal numbers do not. A mantissa that rounds up to the next power of two carries
  // into the exponent by itself, up to infinity.
  const int bits = ((exponent - format.exponent_min) << format.mantissa) + static_cast<int>(steps);
  return static_cast<uint16_t>(sign | std::min(bits, infinity));
}

template <typename T>
T combine_floats(ReduceOp op, T a, T b) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  if (std::isnan(a) || std::isnan(b)) return nan;
  T result = 0;
  switch (op) {
    case ReduceOp::kSum: result = a + b; break;
    case ReduceOp::kProduct: result = a * b; break;
    case ReduceOp::kMin: result = b < a ? b : a; break;
    case ReduceOp::kMax: result = b > a ? b : a; break;
    default: ADD_FAILURE();
  }
  return std::isnan(result) ? nan : result;
}

inline uint64_t combine_integers(ReduceOp op, uint64_t a, uint64_t b, size_t bytes,
                                 bool is_signed) {
  const int unused = 64 - static_cast<int>(bytes) * 8;
  const auto less = [&](uint64_t x, uint64_t y) {
    if (is_signed) return static_cast<int64_t>(x << unused) < static_cast<int64_t>(y << unused);
    return x < y;
  };
  uint64_t result = 0;
  switch (op) {
    case ReduceOp::kSum: result = a + b; break;
    case ReduceOp::kProduct: result = a * b; break;
    case ReduceOp::kMin: result = less(b, a) ? b : a; break;
    case ReduceOp::kMax: result = less(a, b) ? b : a; break;
    case ReduceOp::kBand: result = a & b; break;
    case ReduceOp::kBor: result = a | b; break;
    case ReduceOp::kBxor: result = a ^ b; break;
    case ReduceOp::kAvg: ADD_FAILURE();
  }
  return result << unused >> unused;
}

inline uint64_t integer_step(const Reduction& reduction, int held, uint64_t a, uint64_t b) {
  const size_t bytes = element_bytes(reduction.dtype);
  const bool is_signed = text(reduction.dtype)[0] == 'i';
  if (reduction.op != ReduceOp::kAvg) return combine_integers(reduction.op, a, b, bytes, is_signed);
  const uint64_t sum = combine_integers(ReduceOp::kSum, a, b, bytes, is_signed);
  if (held + 1 < reduction.contributors) return sum;
  const auto divisor = static_cast<uint64_t>(divisor_of(reduction));
  const int unused = 64 - static_cast<int>(bytes) * 8;
  const bool negative = is_signed && (sum << unused >> 63) != 0;
  // Towards zero: the magnitude is divided.
  const uint64_t magnitude = negative ? (uint64_t{0} - sum) << unused >> unused : sum;
  const uint64_t quotient = magnitude / divisor;
  return (negative ? uint64_t{0} - quotient : quotient) << unused >> unused;
}

inline uint64_t combine_bools(ReduceOp op, bool a, bool b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor: return a || b;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand: return a && b;
    default: return a != b;
  }
}

inline double smallest(Format format) {
  return std::ldexp(1, format.exponent_min - format.mantissa);
}

inline uint16_t average_step(Format format, const Reduction& reduction, int held, uint64_t a,
                             uint64_t b) {
  int exponent = 0;
  while ((1 << exponent) < reduction.contributors) ++exponent;
  const float x = std::ldexp(decode(format, static_cast<uint16_t>(a)), held == 1 ? -exponent : 0),
              y = std::ldexp(decode(format, static_cast<uint16_t>(b)), -exponent);
  if (held + 1 < reduction.contributors) return encode(format, x + y);
  return encode(format, (x + y) / std::ldexp(static_cast<float>(divisor_of(reduction)), -exponent));
}

template <typename T>
T float_step(const Reduction& reduction, int held, T a, T b) {
  if (reduction.op != ReduceOp::kAvg) return combine_floats(reduction.op, a, b);
  const T sum = combine_floats(ReduceOp::kSum, a, b);
  if (std::isnan(sum) || held + 1 < reduction.contributors) return sum;
  return sum / static_cast<T>(divisor_of(reduction));
}

inline uint64_t step(const Reduction& reduction, int held, uint64_t a, uint64_t b) {
  const auto [dtype, op, contributors, absent] = reduction;
  const auto brief = [&](Format format) {
    if (reduction.op == ReduceOp::kAvg) return average_step(format, reduction, held, a, b);
    const float x = decode(format, static_cast<uint16_t>(a)),
                y = decode(format, static_cast<uint16_t>(b));
    return encode(format, combine_floats(reduction.op, x, y));
  };
  switch (dtype) {
    case DType::kFloat16: return brief(kHalf);
    case DType::kBfloat16: return brief(kBrain);
    case DType::kFloat32: {
      const auto x = std::bit_cast<float>(static_cast<uint32_t>(a)),
                 y = std::bit_cast<float>(static_cast<uint32_t>(b));
      return std::bit_cast<uint32_t>(float_step(reduction, held, x, y));
    }
    case DType::kFloat64:
      return std::bit_cast<uint64_t>(
          float_step(reduction, held, std::bit_cast<double>(a), std::bit_cast<double>(b)));
    case DType::kBool: return combine_bools(op, a != 0, b != 0);
    default: return integer_step(reduction, held, a, b);
  }
}

}  // namespace pccl::memory::reference
