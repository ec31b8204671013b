// kernels_reference: the functions of csrc/memory/kernels.h, one element at a time and as bits,
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
    case ReduceOp::kSum:
    case ReduceOp::kAvg: result = a + b; break;
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

inline uint64_t combine(DType dtype, ReduceOp op, uint64_t a, uint64_t b) {
  const auto brief = [&](Format format) {
    const float x = decode(format, static_cast<uint16_t>(a)),
                y = decode(format, static_cast<uint16_t>(b));
    return encode(format, combine_floats(op, x, y));
  };
  switch (dtype) {
    case DType::kFloat16: return brief(kHalf);
    case DType::kBfloat16: return brief(kBrain);
    case DType::kFloat32: {
      const auto x = std::bit_cast<float>(static_cast<uint32_t>(a)),
                 y = std::bit_cast<float>(static_cast<uint32_t>(b));
      return std::bit_cast<uint32_t>(combine_floats(op, x, y));
    }
    case DType::kFloat64:
      return std::bit_cast<uint64_t>(
          combine_floats(op, std::bit_cast<double>(a), std::bit_cast<double>(b)));
    case DType::kBool: return combine_bools(op, a != 0, b != 0);
    default: return combine_integers(op, a, b, element_bytes(dtype), text(dtype)[0] == 'i');
  }
}

template <typename T>
T divide_floats(T a, int contributors) {
  return std::isnan(a) ? std::numeric_limits<T>::quiet_NaN() : a / static_cast<T>(contributors);
}

inline uint64_t divide(DType dtype, uint64_t a, int contributors) {
  const auto bits = static_cast<uint16_t>(a);
  switch (dtype) {
    case DType::kFloat16: return encode(kHalf, divide_floats(decode(kHalf, bits), contributors));
    case DType::kBfloat16: return encode(kBrain, divide_floats(decode(kBrain, bits), contributors));
    case DType::kFloat32: {
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(a));
      return std::bit_cast<uint32_t>(divide_floats(value, contributors));
    }
    default: return std::bit_cast<uint64_t>(divide_floats(std::bit_cast<double>(a), contributors));
  }
}

}  // namespace pccl::memory::reference
