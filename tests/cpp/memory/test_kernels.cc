#include "csrc/memory/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "csrc/base/cpu.h"
#include "csrc/base/reducible.h"
#include "csrc/protocol/limits.h"
#include "tests/cpp/memory/kernels_reference.h"

#if PCCL_X86
#include <immintrin.h>
#endif

namespace pccl::memory {
namespace {

using Bytes = std::vector<std::byte>;

using reference::step;

// --- Spans ---------------------------------------------------------------------------------------

uint64_t element(DType dtype, const Bytes& data, size_t index) {
  uint64_t bits = 0;
  // Little-endian, as on all machines that we support.
  std::memcpy(&bits, &data[index * element_bytes(dtype)], element_bytes(dtype));
  return bits;
}

void set_element(DType dtype, Bytes& data, size_t index, uint64_t bits) {
  std::memcpy(&data[index * element_bytes(dtype)], &bits, element_bytes(dtype));
}

// Values with arithmetic corner cases: zeros, ones, extremes, subnormals, infinities and several
// kinds of NaN.
std::vector<uint64_t> corners(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {0,      0x8000, 0x3c00, 0xbc00, 1,      0x8001, 0x03ff, 0x0400,
              0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff};
    case DType::kBfloat16:
      return {0,      0x8000, 0x3f80, 0xbf80, 1,      0x8001, 0x007f, 0x0080,
              0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff};
    case DType::kFloat32:
      return {0,          0x80000000, 0x3f800000, 0xbf800000, 1,
              0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
              0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff};
    case DType::kFloat64:
      return {0,
              1ull << 63,
              0x3ff0ull << 48,
              0xbff0ull << 48,
              1,
              0x800fffffffffffffull,
              0x7fefffffffffffffull,
              0x7ff0ull << 48,
              0xfff0ull << 48,
              0x7ff8ull << 48,
              0x7ff0000000000001ull,
              ~0ull};
    case DType::kBool: return {0, 1, 1, 0, 2, 255, 128};
    default: {
      const int sign = static_cast<int>(element_bytes(dtype)) * 8 - 1;
      return {0,
              1,
              2,
              ~0ull,
              1ull << sign,
              (1ull << sign) - 1,
              (1ull << sign) + 1,
              0x5555555555555555ull};
    }
  }
}

// Two spans in which every pair of corners meets, followed by random bits.
std::pair<Bytes, Bytes> samples(DType dtype, size_t random_count) {
  const auto values = corners(dtype);
  const size_t count = values.size() * values.size() + random_count;
  Bytes a(count * element_bytes(dtype)), b(a.size());
  std::mt19937_64 random(static_cast<uint64_t>(dtype));
  for (size_t i = 0; i < count; ++i) {
    const bool corner = i < values.size() * values.size();
    set_element(dtype, a, i, corner ? values[i / values.size()] : random());
    set_element(dtype, b, i, corner ? values[i % values.size()] : random());
  }
  return {a, b};
}

struct Pair {
  DType dtype;
  ReduceOp op;
};

std::vector<Pair> reducible_pairs() {
  std::vector<Pair> pairs;
  for (uint8_t d = 0; d < kDTypeCount; ++d) {
    for (uint8_t o = 0; o < kReduceOpCount; ++o) {
      const Pair pair{static_cast<DType>(d), static_cast<ReduceOp>(o)};
      if (check_reducible(pair.dtype, pair.op).ok()) pairs.push_back(pair);
    }
  }
  return pairs;
}

// The steps of a reduction that differ from each other: the first of several, one in the middle,
// the last, and the only one.
struct Step {
  int held, contributors, absent = 0;
};
constexpr Step kSteps[] = {{1, 3},    {2, 4},    {2, 3},     {1, 2},       {2, 3, 1},
                           {1, 2, 1}, {3, 4, 4}, {127, 128}, {127, 128, 1}};

// destination = destination (op) source, in that step.
void reduce_into(Pair pair, Step step, std::byte* destination, const std::byte* source,
                 size_t elements) {
  reduce({pair.dtype, pair.op, step.contributors, step.absent}, step.held, destination, destination,
         source, elements);
}

std::string name(Pair pair) { return std::string(text(pair.op)) + " of " + text(pair.dtype); }

constexpr DType kFloats[] = {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64};

// Runs each test with the vector code of this machine and with the portable code.
class Kernels : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { allow_wide_vectors(GetParam()); }
  void TearDown() override { allow_wide_vectors(true); }
};
INSTANTIATE_TEST_SUITE_P(Code, Kernels, testing::Values(true, false), [](const auto& code) {
  return std::string(code.param ? "wide" : "portable");
});

TEST_P(Kernels, EveryPairAgreesWithTheReference) {
  EXPECT_EQ(reducible_pairs().size(), 8u * 8 + 4 * 5 + 7);
  for (const Pair pair : reducible_pairs()) {
    const auto [a, b] = samples(pair.dtype, 1001);
    const size_t count = a.size() / element_bytes(pair.dtype);
    for (const Step at : kSteps) {
      Bytes result = a;
      reduce_into(pair, at, result.data(), b.data(), count);
      size_t wrong = 0;
      for (size_t i = 0; i < count && wrong < 3; ++i) {
        const uint64_t x = element(pair.dtype, a, i), y = element(pair.dtype, b, i);
        const uint64_t expected =
                           step({pair.dtype, pair.op, at.contributors, at.absent}, at.held, x, y),
                       got = element(pair.dtype, result, i);
        if (expected == got) continue;
        ++wrong;
        ADD_FAILURE() << name(pair) << ", " << at.held << " of " << at.contributors << std::hex
                      << ": " << x << ", " << y << " -> " << got << ", not " << expected;
      }
    }
  }
}

TEST_P(Kernels, TheDestinationMayBeEitherOperand) {
  for (const Pair pair : reducible_pairs()) {
    const auto [a, b] = samples(pair.dtype, 333);
    const size_t count = a.size() / element_bytes(pair.dtype);
    const Reduction reduction{pair.dtype, pair.op, 3};
    Bytes apart(a.size()), over_a = a, over_b = b;
    reduce(reduction, 2, apart.data(), a.data(), b.data(), count);
    reduce(reduction, 2, over_a.data(), over_a.data(), b.data(), count);
    reduce(reduction, 2, over_b.data(), a.data(), over_b.data(), count);
    EXPECT_TRUE(apart == over_a && apart == over_b) << name(pair);
  }
}

// Neither the end of a chunk nor its address may affect the sum.
TEST_P(Kernels, CutsAndAlignmentDoNotMatter) {
  std::mt19937_64 random(1);
  constexpr Step kStep{2, 3};
  for (const Pair pair : reducible_pairs()) {
    const size_t size = element_bytes(pair.dtype);
    const auto [a, b] = samples(pair.dtype, 500);
    const size_t count = a.size() / size;
    Bytes whole = a;
    reduce_into(pair, kStep, whole.data(), b.data(), count);
    for (size_t offset : {0, 1, 2, 3, 4, 15, 17}) {
      Bytes into(a.size() + offset), from(b.size() + 2 * offset);
      std::copy(a.begin(), a.end(), into.data() + offset);
      std::copy(b.begin(), b.end(), from.data() + 2 * offset);
      for (size_t done = 0; done < count;) {
        const size_t piece = std::min<size_t>(random() % 40, count - done);  // empty pieces too
        reduce_into(pair, kStep, into.data() + offset + done * size,
                    from.data() + 2 * offset + done * size, piece);
        done += piece;
      }
      EXPECT_TRUE(std::equal(whole.begin(), whole.end(), into.data() + offset))
          << name(pair) << " +" << offset;
    }
  }
}

TEST_P(Kernels, NothingBeyondTheEndIsTouched) {
  for (const Pair pair : reducible_pairs()) {
    const size_t size = element_bytes(pair.dtype);
    for (size_t count = 0; count < 40; ++count) {
      Bytes into(count * size + 64, std::byte{0xA5});
      const Bytes from(count * size,
                       // Exactly this long, so that a sanitizer sees a read beyond the end.
                       std::byte{0x11});
      reduce_into(pair, {2, 3}, into.data(), from.data(), count);
      const auto untouched = [](std::byte byte) { return byte == std::byte{0xA5}; };
      EXPECT_TRUE(
          std::all_of(into.begin() + static_cast<ptrdiff_t>(count * size), into.end(), untouched))
          << name(pair);
    }
  }
}

// Combines every 16-bit float with each corner, in each operation: rounding (halfway cases too),
// subnormals, infinities, NaN.
TEST_P(Kernels, All16BitFloats) {
  constexpr size_t kAll = 65536;
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    auto others = corners(dtype);
    for (uint64_t bits : {0x3555, 0x4248, 0x1401, 0x0200, 0xc4e1}) others.push_back(bits);
    Bytes all(kAll * 2), other(kAll * 2), result(kAll * 2);
    for (size_t i = 0; i < kAll; ++i) set_element(dtype, all, i, i);
    const auto expect_right = [&](const Reduction& reduction, int held, uint64_t bits) {
      for (size_t i = 0; i < kAll; ++i) set_element(dtype, other, i, bits);
      reduce(reduction, held, result.data(), all.data(), other.data(), kAll);
      size_t wrong = 0;
      for (size_t i = 0; i < kAll; ++i)
        wrong += element(dtype, result, i) != step(reduction, held, i, bits);
      EXPECT_EQ(wrong, 0u) << name({dtype, reduction.op}) << " of " << reduction.contributors
                           << ", the others hold " << held << ", with 0x" << std::hex << bits;
    };
    for (uint64_t bits : others) {
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax})
        expect_right({dtype, op}, 1, bits);
      for (const auto& [held, contributors, absent] :
           {Step{1, 2}, Step{1, 3}, Step{2, 3}, Step{6, 7}, Step{6, 7, 3}})
        expect_right({dtype, ReduceOp::kAvg, contributors, absent}, held, bits);
    }
  }
}

TEST_P(Kernels, RoundsHalfwayToEven) {
  const auto add = [](DType dtype, uint16_t a, uint16_t b) {
    reduce_into({dtype, ReduceOp::kSum}, {1, 2}, reinterpret_cast<std::byte*>(&a),
                reinterpret_cast<const std::byte*>(&b), 1);
    return a;
  };
  // float16: 2048 + 1 lies between 2048 and 2050, 2050 + 1 between 2050 and 2052, and 65504 + 16
  // between 65504 and infinity.
  EXPECT_EQ(add(DType::kFloat16, 0x6800, 0x3c00), 0x6800);
  EXPECT_EQ(add(DType::kFloat16, 0x6801, 0x3c00), 0x6802);
  EXPECT_EQ(add(DType::kFloat16, 0x7bff, 0x4c00), 0x7c00);
  EXPECT_EQ(add(DType::kFloat16, 0x7bff, 0x4bff), 0x7bff);
  EXPECT_EQ(add(DType::kFloat16, 0x0001, 0x03ff),
            // Subnormals add up to the smallest normal number.
            0x0400);
  // bfloat16: 256 + 1 and 258 + 1.
  EXPECT_EQ(add(DType::kBfloat16, 0x4380, 0x3f80), 0x4380);
  EXPECT_EQ(add(DType::kBfloat16, 0x4381, 0x3f80), 0x4382);
  EXPECT_EQ(add(DType::kBfloat16, 0x0001, 0x007f), 0x0080);
}

// --- Averages of 16-bit floats -------------------------------------------------------------------

const reference::Format& format_of(DType dtype) {
  return dtype == DType::kFloat16 ? reference::kHalf : reference::kBrain;
}
double decoded(DType dtype, const Bytes& data, size_t index) {
  return reference::decode(format_of(dtype), static_cast<uint16_t>(element(dtype, data, index)));
}

// All members' contributions, and the average that the kernels compute of them.
Bytes average(DType dtype, const std::vector<Bytes>& contributions, int absent = 0) {
  const Reduction reduction{dtype, ReduceOp::kAvg, static_cast<int>(contributions.size()), absent};
  Bytes result = contributions[0];
  for (int held = 1; held < reduction.contributors; ++held) {
    reduce(reduction, held, result.data(), result.data(),
           contributions[static_cast<size_t>(held)].data(), result.size() / 2);
  }
  return result;
}

// Checks the bound of kernels.h. It holds for the largest numbers and for subnormals alike.
void expect_close(DType dtype, const std::vector<Bytes>& contributions) {
  const auto contributors = static_cast<double>(contributions.size());
  const reference::Format format = format_of(dtype);
  const Bytes result = average(dtype, contributions);
  for (size_t i = 0; i < result.size() / 2; ++i) {
    double sum = 0, magnitudes = 0;
    for (const Bytes& contribution : contributions) {
      sum += decoded(dtype, contribution, i);
      magnitudes += std::fabs(decoded(dtype, contribution, i));
    }
    const double error_max =
        std::ldexp(magnitudes, -format.mantissa - 1) + contributors * reference::smallest(format);
    // An infinite result is not close to anything finite.
    ASSERT_LE(std::fabs(decoded(dtype, result, i) - sum / contributors), error_max)
        << text(dtype) << ", " << contributors << " contributors, element " << i;
  }
}

// No numbers have a larger average, and rounding is monotone. So this shows that no finite numbers
// overflow.
TEST_P(Kernels, TheAverageOfTheLargestNumberDoesNotOverflow) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Bytes largest(2);
    set_element(dtype, largest, 0, dtype == DType::kFloat16 ? 0x7bff : 0x7f7f);
    for (size_t contributors = 2; contributors <= protocol::kMembersMax; ++contributors)
      expect_close(dtype, std::vector(contributors, largest));
  }
}

// One member alone gives its number, and nobody gives 0. All but one stay below an overflow.
TEST_P(Kernels, AnAverageDoesNotCountAbsentMembers) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Bytes largest(2);
    set_element(dtype, largest, 0, dtype == DType::kFloat16 ? 0x7bff : 0x7f7f);
    for (const int members : {2, 3, 7, 128}) {
      const auto middle = static_cast<size_t>(members / 2);
      std::vector<Bytes> contributions(static_cast<size_t>(members), Bytes(2));
      EXPECT_TRUE(average(dtype, contributions, members) == Bytes(2));
      contributions[middle] = largest;
      EXPECT_TRUE(average(dtype, contributions, members - 1) == largest);
      contributions.assign(static_cast<size_t>(members), largest);
      contributions[middle] = Bytes(2);
      EXPECT_TRUE(std::isfinite(decoded(dtype, average(dtype, contributions, 1), 0)));
    }
  }
}

TEST_P(Kernels, AveragesOf16BitFloatsAreClose) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (const size_t contributors : {2, 3, 4, 5, 6, 7, 8, 9, 31, 128}) {
      std::mt19937_64 random(contributors);
      const uint64_t infinity = dtype == DType::kFloat16 ? 0x7c00 : 0x7f80;
      // The largest magnitudes, subnormals, all magnitudes.
      struct Range {
        uint64_t lowest, end;
      };
      for (const Range& range : {Range{infinity - 40, infinity}, {1, 0x80}, {0, infinity}}) {
        std::vector<Bytes> contributions(contributors, Bytes(2 * 1000));
        for (size_t i = 0; i < 1000; ++i) {
          const uint64_t sign = random() % 2;
          for (Bytes& contribution : contributions) {
            // All of one sign in one half of the elements, mixed in the other.
            const uint64_t own_sign = i % 2 == 0 ? sign : random() % 2;
            const uint64_t magnitude = range.lowest + random() % (range.end - range.lowest);
            set_element(dtype, contribution, i, magnitude | (own_sign << 15));
          }
        }
        expect_close(dtype, contributions);
      }
    }
  }
}

TEST_P(Kernels, TheAverageOfEqualNumbers) {
  const auto expect_itself = [](uint64_t bits, size_t contributors) {
    Bytes number(2);
    set_element(DType::kFloat16, number, 0, bits);
    const Bytes result = average(DType::kFloat16, std::vector(contributors, number));
    EXPECT_EQ(element(DType::kFloat16, result, 0), bits) << contributors;
  };
  for (const size_t contributors : {2, 3, 4, 5}) {
    for (const uint64_t bits : {0x78e2, 0x7bff, 0xfbff, 0x3c00}) expect_itself(bits, contributors);
  }
  // Two contributions are added in float32, so subnormals lose nothing either.
  for (const uint64_t bits : {0x0001, 0x8001, 0x03ff}) expect_itself(bits, 2);
}

TEST_P(Kernels, AnAverageWithInfinityOrNan) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const uint64_t infinity = dtype == DType::kFloat16 ? 0x7c00 : 0x7f80, minus = 0x8000,
                   largest = infinity - 1, nan = dtype == DType::kFloat16 ? 0x7e00 : 0x7fc0;
    for (const size_t contributors : {2, 3, 4, 9}) {
      for (size_t first = 0; first < contributors; ++first) {
        const size_t second = (first + 1) % contributors;
        const auto with = [&](uint64_t one, uint64_t other) {
          std::vector<Bytes> contributions(contributors, Bytes(2));
          for (Bytes& contribution : contributions) set_element(dtype, contribution, 0, largest);
          set_element(dtype, contributions[first], 0, one);
          set_element(dtype, contributions[second], 0, other);
          return element(dtype, average(dtype, contributions), 0);
        };
        EXPECT_EQ(with(infinity, largest), infinity);
        EXPECT_EQ(with(infinity, infinity), infinity);
        EXPECT_EQ(with(infinity | minus, largest), infinity | minus);
        EXPECT_EQ(with(infinity, infinity | minus), nan);
        EXPECT_EQ(with(nan | minus | 1, largest), nan);
        EXPECT_EQ(with(nan, infinity), nan);
      }
    }
  }
}

#if PCCL_X86
// The thread of an application that calls us may flush subnormals or round in another way.
TEST_P(Kernels, TheCallersFloatModeIsIgnoredAndKept) {
  const unsigned plain = _mm_getcsr();
  for (DType dtype : kFloats) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kAvg}) {
      const auto [a, b] = samples(dtype, 1000);
      const size_t count = a.size() / element_bytes(dtype);
      Bytes expected = a, got = a;
      reduce_into({dtype, op}, {2, 3}, expected.data(), b.data(), count);
      constexpr unsigned kFlushAndRoundUp = 0x8040 | 0x4000;
      _mm_setcsr((plain & ~0x3fu) | kFlushAndRoundUp);
      reduce_into({dtype, op}, {2, 3}, got.data(), b.data(), count);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(plain);
      EXPECT_EQ(got, expected) << name({dtype, op});
      EXPECT_EQ(after & kFlushAndRoundUp, kFlushAndRoundUp);
    }
  }
}
#endif

TEST_P(Kernels, NothingIsAllowed) {
  reduce({DType::kFloat32, ReduceOp::kSum}, 1, nullptr, nullptr, nullptr, 0);
  reduce({DType::kFloat16, ReduceOp::kAvg, 2}, 1, nullptr, nullptr, nullptr, 0);
  save_past_cache(nullptr, nullptr, 0);
}

TEST(SavePastCache, CopiesEveryByteAtAnyAlignment) {
  std::mt19937_64 random(1);
  Bytes from(70000);
  for (auto& byte : from) byte = static_cast<std::byte>(random());
  for (size_t bytes : {0,   1,    15,   16,   63,    64,    65,    127,   128,   129,
                       200, 1000, 4096, 4500, 32767, 32768, 32833, 32900, 65536, 69000}) {
    for (size_t to_offset : {0, 1, 7, 16, 31, 63}) {
      for (size_t from_offset : {0, 1, 5, 32}) {
        Bytes to(bytes + to_offset + 100, std::byte{0xA5});
        save_past_cache(to.data() + to_offset, from.data() + from_offset, bytes);
        Bytes expected(to.size(), std::byte{0xA5});
        std::copy_n(from.data() + from_offset, bytes, expected.data() + to_offset);
        EXPECT_EQ(to, expected) << bytes << " bytes to +" << to_offset << " from +" << from_offset;
      }
    }
  }
}

TEST(KernelsDeathTest, AnUnknownReductionIsABug) {
  std::byte data[16] = {};
  const auto reduce_with = [&](const Reduction& reduction, int held) {
    reduce(reduction, held, data, data, data + 8, 1);
  };
  EXPECT_DEATH(reduce_with({DType::kBytes, ReduceOp::kSum, 2}, 1), "combine");
  EXPECT_DEATH(reduce_with({DType::kBool, ReduceOp::kAvg, 2}, 1), "combine");
  EXPECT_DEATH(reduce_with({DType::kFloat32, ReduceOp::kBxor, 2}, 1), "combine");
  EXPECT_DEATH(reduce_with({DType::kFloat32, ReduceOp::kAvg, 2}, 2), "held < reduction");
  EXPECT_DEATH(reduce_with({DType::kFloat16, ReduceOp::kAvg, 2}, 0), "1 <= held");
}

}  // namespace
}  // namespace pccl::memory
