#include "csrc/memory/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "csrc/base/cpu.h"
#include "csrc/memory/threefry.h"
#if PCCL_X86
#include <immintrin.h>
#endif

namespace pccl::memory {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

const std::vector<Quantization> kFormats = {{8, 256}, {8, 32}, {8, 1024}, {4, 64}, {4, 1024}};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
const std::byte* bytes_of(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

template <typename T>
Bytes encoded(const Quantization& how, DType dtype, const std::vector<T>& values,
              const Rounding& rounding = {}) {
  Bytes out(quantized_bytes(how, values.size()), std::byte{0xee});
  quantize(how, dtype, bytes_of(values), whole(values.size()), out.data(), rounding);
  return out;
}

// Calls run() with each set of instructions, the widest last.
void with_each_width(const auto& run) {
  for (const int width : {0, 1, 2}) {
    allow_wide_vectors(width > 0);
    allow_widest_vectors(width > 1);
    SCOPED_TRACE(width);
    run();
  }
}

Floats decoded_codes(const Quantization& how, const Bytes& codes, size_t elements) {
  Floats out(elements, -1);
  dequantize(how, DType::kFloat32, codes.data(), whole(elements),
             reinterpret_cast<std::byte*>(out.data()));
  return out;
}

Floats there_and_back(const Quantization& how, const Floats& values,
                      const Rounding& rounding = {}) {
  return decoded_codes(how, encoded(how, DType::kFloat32, values, rounding), values.size());
}

// ---- The definition, element by element ---------------------------------------------------------

float scale_of(const float* x, size_t elements, int bits) {
  float lo = 0, hi = 0;
  for (size_t at = 0; at < elements; ++at) {
    if (!std::isfinite(x[at])) return std::numeric_limits<float>::quiet_NaN();
    lo = std::min(lo, x[at]);
    hi = std::max(hi, x[at]);
  }
  const float part = 1.0f / static_cast<float>((1 << bits) - 2);
  auto scale = std::bit_cast<uint32_t>(hi * part - lo * part);
  if ((scale & 0xffff) != 0) scale = (scale | 0xffff) + 1;
  const auto rounded = std::bit_cast<float>(scale);
  return rounded < std::numeric_limits<float>::min() ? 0 : rounded;
}

// The number that is added to element i of a block of `elements`, before rounding to nearest.
float shift_of(const Quantization& how, const Rounding& rounding, size_t block, size_t i,
               size_t elements) {
  const size_t per_word = 32 / how.bits, words = (elements + per_word - 1) / per_word;
  const uint64_t word = (rounding.first / how.block + block) * (how.block / per_word) + i % words;
  const auto k = static_cast<uint32_t>(i / words);
  uint32_t a = static_cast<uint32_t>(word), b = static_cast<uint32_t>(word >> 32) << 1 | k / 4;
  threefry(ThreefryKey(rounding.key), a, b);
  const uint32_t number = ((k % 4 < 2 ? a : b) >> (k % 2 * 16)) & 0xffff;
  return static_cast<float>(static_cast<int>(number | 1) - 0x8000) / 65536;
}

Floats reference(const Quantization& how, const Floats& values, const Rounding& rounding = {}) {
  Floats out;
  for (size_t at = 0; at < values.size(); at += how.block) {
    const size_t here = std::min<size_t>(how.block, values.size() - at);
    const float* const x = values.data() + at;
    const float scale = scale_of(x, here, how.bits);
    const float inverse = 1.0f / scale, lo = std::min(0.0f, *std::min_element(x, x + here));
    for (size_t i = 0; i < here; ++i) {
      if (std::isnan(scale) || scale == 0) {
        out.push_back(scale);
        continue;
      }
      const float zero = rounding.random ? std::ceil(-lo * inverse) : std::nearbyint(-lo * inverse);
      float exact = x[i] * inverse;
      if (rounding.random) exact += shift_of(how, rounding, at / how.block, i, here);
      float code = std::nearbyint(exact) + zero;
      if (rounding.random) code = std::min(code, static_cast<float>((1 << how.bits) - 1));
      EXPECT_TRUE(code >= 0 && code <= static_cast<float>((1 << how.bits) - 1));
      out.push_back((code - zero) * scale);
    }
  }
  return out;
}

void expect_same_bits(const Floats& left, const Floats& right) {
  ASSERT_EQ(left.size(), right.size());
  for (size_t at = 0; at < left.size(); ++at) {
    if (std::isnan(left[at]) && std::isnan(right[at])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(left[at]), std::bit_cast<uint32_t>(right[at]))
        << left[at] << " and " << right[at] << " at " << at << " of " << left.size();
  }
}

// Numbers of very different sizes, and many zeros.
Floats sample(std::mt19937& random, size_t elements) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-60, 60), kind(0, 9);
  const float scale = std::ldexp(1.0f, exponent(random));
  const float shift = kind(random) < 3 ? 3 : 0;
  Floats values(elements);
  for (float& value : values) value = kind(random) == 0 ? 0 : (normal(random) + shift) * scale;
  if (kind(random) == 0) values[elements / 2] *= 0x1p30f;
  return values;
}

// ---- Tests --------------------------------------------------------------------------------------

TEST(Quantize, EveryMachineGivesTheBitsOfTheDefinition) {
  std::mt19937 random(1);
  for (const Quantization& how : kFormats) {
    for (size_t elements = 1; elements < 3000; elements += 1 + elements / 9) {
      const Floats values = sample(random, elements);
      const uint64_t first = random() % 2 * how.block << 33;
      for (const Rounding& rounding : {Rounding{}, Rounding{true, random(), first}}) {
        const Floats expected = reference(how, values, rounding);
        const Bytes codes = encoded(how, DType::kFloat32, values, rounding);
        with_each_width([&] {
          EXPECT_EQ(encoded(how, DType::kFloat32, values, rounding), codes);
          expect_same_bits(decoded_codes(how, codes, elements), expected);
        });
      }
    }
  }
}

// Both shorter ways lead to what the codes decode to.
TEST(Quantize, NumbersAreThoseThatTheCodesDecodeTo) {
  std::mt19937 random(6);
  std::vector<Quantization> formats = kFormats;
  formats.push_back({16, 256});
  for (const Quantization& how : formats) {
    for (const size_t elements : {1u, 31u, 256u, 700u, 2048u, 5001u}) {
      Floats values = sample(random, elements), before = sample(random, elements);
      if (elements == 700) values[3] = kInfinity;
      const Rounding rounding{elements % 2 == 0, random(), 0};
      const Bytes codes = encoded(how, DType::kFloat32, values, rounding);
      const Floats expected = decoded_codes(how, codes, elements);
      with_each_width([&] {
        Bytes again(codes.size());
        Floats back(elements), in_place = values, sum = before, other = before;
        quantize_both(how, values.data(), whole(elements), again.data(), back.data(), rounding);
        EXPECT_EQ(again, codes);
        expect_same_bits(back, expected);
        const std::byte* const from = bytes_of(in_place);
        set_quantized(how, DType::kFloat32, from, whole(elements), in_place.data(), rounding);
        expect_same_bits(in_place, expected);
        add_quantized(how, DType::kFloat32, bytes_of(values), whole(elements), sum.data(),
                      rounding);
        add_dequantized(how, codes.data(), whole(elements), other.data());
        expect_same_bits(sum, other);
      });
    }
  }
}

// ---- Rounded at random --------------------------------------------------------------------------

// The mean over many keys is the number itself, where a number rounded to nearest is off by up to
// half a scale. All bounds are four standard deviations.
TEST(Quantize, RandomRoundingHasNoBias) {
  constexpr int kKeys = 4096;
  std::mt19937 random(7);
  for (const Quantization& how : {Quantization{8, 256}, Quantization{4, 64}}) {
    const size_t elements = how.block + 13;
    const Floats values = sample(random, elements), near = there_and_back(how, values);
    std::vector<double> sums(elements);
    for (uint64_t key = 0; key < kKeys; ++key) {
      const Floats back = there_and_back(how, values, {true, key, 0});
      for (size_t at = 0; at < elements; ++at) sums[at] += double{back[at]};
    }
    double bias = 0, bias_of_near = 0;
    for (size_t at = 0; at < elements; ++at) {
      const size_t first = at / how.block * how.block;
      const double scale = double{
          scale_of(values.data() + first, std::min<size_t>(how.block, elements - first), how.bits)};
      const double error = (sums[at] / kKeys - double{values[at]}) / scale;
      ASSERT_LE(std::abs(error), 4 * 0.5 / std::sqrt(kKeys)) << at;
      bias += std::abs(error);
      bias_of_near += std::abs(double{near[at]} - double{values[at]}) / scale;
    }
    EXPECT_LT(bias / static_cast<double>(elements), 0.01);
    EXPECT_GT(bias_of_near / static_cast<double>(elements), 0.2) << "a test that can fail";
  }
}

// Each number becomes one of the two multiples of the scale beside it, also at both ends of a
// block, and a multiple of the scale stays as it is.
TEST(Quantize, RandomRoundingTakesANeighbour) {
  std::mt19937 random(8);
  std::uniform_real_distribution<float> part(0, 1);
  for (const Quantization& how : {Quantization{8, 256}, Quantization{4, 64}}) {
    const int levels = (1 << how.bits) - 2;
    int exact = 0;
    for (uint64_t key = 0; key < 2000; ++key) {
      const int low = static_cast<int>(random() % static_cast<unsigned>(levels + 1));
      Floats values;
      for (size_t i = 0; i < how.block; ++i) {
        const int whole = static_cast<int>(i) % (levels + 1) - low;
        const bool between = i % 2 == 1 && whole < levels - low;
        values.push_back(static_cast<float>(whole) + (between ? part(random) : 0));
      }
      const float scale = scale_of(values.data(), how.block, how.bits);
      const Floats back = there_and_back(how, values, {true, key, 0});
      for (size_t i = 0; i < how.block; ++i) {
        const float number = values[i] / scale, code = back[i] / scale;
        ASSERT_TRUE(code == std::floor(number) || code == std::ceil(number))
            << number << " became " << code;
      }
      exact += scale == 1;
    }
    EXPECT_GT(exact, 20) << "a test of multiples of the scale";
  }
}

TEST(Quantize, RandomBitsAreThoseOfThePlaceAndTheKey) {
  std::mt19937 random(9);
  for (const Quantization& how : {Quantization{8, 256}, Quantization{4, 64}}) {
    const Floats values = sample(random, 10 * how.block);
    const Floats all = there_and_back(how, values, {true, 5, 0});
    const Floats tail(values.begin() + 3 * how.block, values.end());
    const Floats of_tail(all.begin() + 3 * how.block, all.end());
    expect_same_bits(there_and_back(how, tail, {true, 5, 3 * how.block}), of_tail);
    EXPECT_NE(there_and_back(how, tail, {true, 5, 4 * how.block}), of_tail);
    EXPECT_NE(there_and_back(how, tail, {true, 6, 3 * how.block}), of_tail);
  }
}

TEST(Quantize, TheErrorIsHalfAScaleAtMost) {
  std::mt19937 random(2);
  for (const Quantization& how : kFormats) {
    for (int round = 0; round < 20; ++round) {
      const Floats values = sample(random, 5 * how.block);
      const Floats back = there_and_back(how, values);
      for (size_t at = 0; at < values.size(); ++at) {
        const float* const block = values.data() + at / how.block * how.block;
        const auto [lo, hi] = std::minmax_element(block, block + how.block);
        const float range = std::max(0.0f, *hi) - std::min(0.0f, *lo);
        const float scale = range / static_cast<float>((1 << how.bits) - 2) * (1 + 0x1p-7f);
        ASSERT_LE(std::abs(back[at] - values[at]), 0.5f * (1 + 0x1p-14f) * scale);
        ASSERT_TRUE(values[at] != 0 || std::bit_cast<uint32_t>(back[at]) == 0);
      }
    }
  }
}

TEST(Quantize, ABlockIsEncodedTheSameWhereverTheSpanBegins) {
  std::mt19937 random(3);
  const Quantization how{4, 64};
  const Floats values = sample(random, 640);
  const Floats whole = there_and_back(how, values);
  const Floats tail(values.begin() + 320, values.end());
  expect_same_bits(there_and_back(how, tail), {whole.begin() + 320, whole.end()});
}

TEST(Quantize, SpecialValues) {
  const float least = std::numeric_limits<float>::denorm_min();
  const float most = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Quantization& how : kFormats) {
    for (const float special : {nan, -nan, kInfinity, -kInfinity}) {
      Floats values(3 * how.block, 1);
      values[how.block + 5] = special;
      const Floats back = there_and_back(how, values);
      for (size_t at = 0; at < values.size(); ++at) {
        const bool in_block = at / how.block == 1;
        ASSERT_EQ(std::isnan(back[at]), in_block) << at;
        ASSERT_TRUE(!in_block || std::bit_cast<uint32_t>(back[at]) == 0x7fc00000u);
      }
    }
    for (const float value : {0.0f, -0.0f, least, -least, 0x1p-126f, -0x1p-123f}) {
      for (const float back : there_and_back(how, Floats(how.block, value)))
        ASSERT_EQ(std::bit_cast<uint32_t>(back), 0u) << value;
    }
    for (const float value : {1.0f, -3.0f, 0.99f * most, -0.99f * most}) {
      const float back = there_and_back(how, Floats(how.block, value))[7];
      ASSERT_LE(std::abs(back / value - 1), 0x1p-7f) << value;
    }
    Floats wide(how.block, most);
    wide[3] = -most;
    expect_same_bits(there_and_back(how, wide), reference(how, wide));
  }
}

TEST(Quantize, SumsAreThoseOfTheDecodedNumbers) {
  std::mt19937 random(4);
  for (const Quantization& how : {Quantization{8, 256}, Quantization{4, 64}, Quantization{16, 0}}) {
    const size_t elements = 1000;
    const Floats first = sample(random, elements), second = sample(random, elements);
    Floats sum = there_and_back(how, first);
    const Floats more = there_and_back(how, second);
    Floats expected = sum;
    for (size_t at = 0; at < elements; ++at) expected[at] += more[at];
    const Bytes codes = encoded(how, DType::kFloat32, second);
    with_each_width([&] {
      Floats total = sum;
      add_dequantized(how, codes.data(), whole(elements), total.data());
      expect_same_bits(total, expected);
    });
  }
}

// A bfloat16 is the upper half of a float32.
TEST(Quantize, NarrowTensorsAreQuantizedAsFloat32) {
  std::mt19937 random(5);
  const Quantization how{8, 256};
  Floats values = sample(random, 700);
  std::vector<uint16_t> narrow;
  for (float& value : values) {
    narrow.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    value = std::bit_cast<float>(uint32_t{narrow.back()} << 16);
  }
  const Bytes codes = encoded(how, DType::kBfloat16, narrow);
  EXPECT_EQ(codes, encoded(how, DType::kFloat32, values));
  std::vector<uint16_t> back(narrow.size());
  dequantize(how, DType::kBfloat16, codes.data(), whole(back.size()),
             reinterpret_cast<std::byte*>(back.data()));
  const Floats wide = there_and_back(how, values);
  for (size_t at = 0; at < back.size(); ++at)
    ASSERT_LE(std::abs(std::bit_cast<float>(uint32_t{back[at]} << 16) - wide[at]),
              std::abs(wide[at]) * 0x1p-8f);

  const std::vector<uint16_t> halves = {0x3c00, 0xc000, 0x0000, 0x7bff};  // 1, -2, 0, 65504
  expect_same_bits(decoded_codes(how, encoded(how, DType::kFloat16, halves), 4),
                   there_and_back(how, {1, -2, 0, 65504}));
}

TEST(Quantize, SixteenBitsAreBfloat16RoundedToEven) {
  const Quantization how{16, 0};
  EXPECT_EQ(quantized_bytes(how, 5), 10u);
  const Floats values = {1, 1 + 0x1p-8f, 1 + 3 * 0x1p-8f, -kInfinity, 0x1p-133f};
  expect_same_bits(there_and_back(how, values), {1, 1, 1 + 0x1p-6f, -kInfinity, 0x1p-133f});
}

TEST(Quantize, BytesOnTheWire) {
  EXPECT_EQ(quantized_bytes({8, 256}, 0), 0u);
  EXPECT_EQ(quantized_bytes({8, 256}, 512), 512u + 2 * 3);
  EXPECT_EQ(quantized_bytes({8, 256}, 513), 512u + 4 + 3 * 3) << "a word of four codes";
  EXPECT_EQ(quantized_bytes({4, 64}, 128), 64u + 2 * 3);
  EXPECT_EQ(quantized_bytes({4, 64}, 64 + 9), 32u + 8 + 2 * 3) << "two words of eight codes";
}

#if PCCL_X86
TEST(Quantize, TheFloatingPointModeOfTheCallerDoesNotMatter) {
  const Quantization how{8, 256};
  Floats values(256, 0x1p-126f);
  values[0] = 0x1p-118f;  // the scale is the least normal number, and 2^-127 is subnormal
  values[1] = 0x1p-127f;
  const Floats before = there_and_back(how, values);
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040 | 0x6000);  // flush to zero, subnormals are zero, round toward zero
  const Floats after = there_and_back(how, values);
  _mm_setcsr(mode);
  expect_same_bits(after, before);
}
#endif

}  // namespace
}  // namespace pccl::memory
