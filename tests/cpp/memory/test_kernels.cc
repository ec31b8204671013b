#include "csrc/memory/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "csrc/base/cpu.h"
#include "csrc/base/reducible.h"
#include "tests/cpp/memory/kernels_reference.h"

#if PCCL_X86
#include <immintrin.h>
#endif

namespace pccl::memory {
namespace {

using Bytes = std::vector<std::byte>;

using reference::combine;
using reference::divide;

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
  EXPECT_EQ(reducible_pairs().size(), 8u * 7 + 4 * 5 + 7);
  for (const Pair pair : reducible_pairs()) {
    const auto [a, b] = samples(pair.dtype, 1001);
    const size_t count = a.size() / element_bytes(pair.dtype);
    Bytes result = a;
    reduce_into(pair.dtype, pair.op, result.data(), b.data(), count);
    size_t wrong = 0;
    for (size_t i = 0; i < count && wrong < 3; ++i) {
      const uint64_t x = element(pair.dtype, a, i), y = element(pair.dtype, b, i);
      const uint64_t expected = combine(pair.dtype, pair.op, x, y),
                     got = element(pair.dtype, result, i);
      if (expected == got) continue;
      ++wrong;
      ADD_FAILURE() << name(pair) << std::hex << ": " << x << ", " << y << " -> " << got << ", not "
                    << expected;
    }
  }
}

TEST_P(Kernels, TheDestinationMayBeEitherOperand) {
  for (const Pair pair : reducible_pairs()) {
    const auto [a, b] = samples(pair.dtype, 333);
    const size_t count = a.size() / element_bytes(pair.dtype);
    Bytes into = a, apart(a.size()), over_a = a, over_b = b;
    reduce_into(pair.dtype, pair.op, into.data(), b.data(), count);
    reduce_out(pair.dtype, pair.op, apart.data(), a.data(), b.data(), count);
    reduce_out(pair.dtype, pair.op, over_a.data(), over_a.data(), b.data(), count);
    reduce_out(pair.dtype, pair.op, over_b.data(), a.data(), over_b.data(), count);
    EXPECT_TRUE(into == apart && into == over_a && into == over_b) << name(pair);
  }
}

// Neither the end of a chunk nor its address may affect the sum.
TEST_P(Kernels, CutsAndAlignmentDoNotMatter) {
  std::mt19937_64 random(1);
  for (const Pair pair : reducible_pairs()) {
    const size_t size = element_bytes(pair.dtype);
    const auto [a, b] = samples(pair.dtype, 500);
    const size_t count = a.size() / size;
    Bytes whole = a;
    reduce_into(pair.dtype, pair.op, whole.data(), b.data(), count);
    for (size_t offset : {0, 1, 2, 3, 4, 15, 17}) {
      Bytes into(a.size() + offset), from(b.size() + 2 * offset);
      std::copy(a.begin(), a.end(), into.data() + offset);
      std::copy(b.begin(), b.end(), from.data() + 2 * offset);
      for (size_t done = 0; done < count;) {
        const size_t piece = std::min<size_t>(random() % 40, count - done);  // empty pieces too
        reduce_into(pair.dtype, pair.op, into.data() + offset + done * size,
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
      reduce_into(pair.dtype, pair.op, into.data(), from.data(), count);
      finish(pair.dtype, pair.op, into.data(), count, 3);
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
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      for (uint64_t bits : others) {
        for (size_t i = 0; i < kAll; ++i) set_element(dtype, other, i, bits);
        reduce_out(dtype, op, result.data(), all.data(), other.data(), kAll);
        size_t wrong = 0;
        for (size_t i = 0; i < kAll; ++i)
          wrong += element(dtype, result, i) != combine(dtype, op, i, bits);
        EXPECT_EQ(wrong, 0u) << name({dtype, op}) << " with 0x" << std::hex << bits;
      }
    }
  }
}

TEST_P(Kernels, RoundsHalfwayToEven) {
  const auto add = [](DType dtype, uint16_t a, uint16_t b) {
    reduce_into(dtype, ReduceOp::kSum, reinterpret_cast<std::byte*>(&a),
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

TEST_P(Kernels, AverageDividesOnceByTheContributors) {
  for (DType dtype : kFloats) {
    const bool brief = element_bytes(dtype) == 2;
    Bytes data = samples(dtype, 2000).first;
    if (brief) {
      data.resize(size_t{65536} * 2);
      for (size_t i = 0; i < 65536; ++i) set_element(dtype, data, i, i);
    }
    const size_t count = data.size() / element_bytes(dtype);
    for (int contributors : {1, 2, 3, 7, 10, 1000}) {
      Bytes result = data;
      finish(dtype, ReduceOp::kAvg, result.data(), count, contributors);
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        wrong += element(dtype, result, i) != divide(dtype, element(dtype, data, i), contributors);
      }
      EXPECT_EQ(wrong, 0u) << text(dtype) << " / " << contributors;
    }
  }
}

TEST_P(Kernels, FinishLeavesOtherOperationsAlone) {
  for (const Pair pair : reducible_pairs()) {
    if (pair.op == ReduceOp::kAvg) continue;
    const Bytes before = samples(pair.dtype, 10).first;
    Bytes data = before;
    finish(pair.dtype, pair.op, data.data(), data.size() / element_bytes(pair.dtype), 3);
    EXPECT_EQ(data, before) << name(pair);
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
      reduce_into(dtype, op, expected.data(), b.data(), count);
      finish(dtype, op, expected.data(), count, 3);
      constexpr unsigned kFlushAndRoundUp = 0x8040 | 0x4000;
      _mm_setcsr((plain & ~0x3fu) | kFlushAndRoundUp);
      reduce_into(dtype, op, got.data(), b.data(), count);
      finish(dtype, op, got.data(), count, 3);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(plain);
      EXPECT_EQ(got, expected) << name({dtype, op});
      EXPECT_EQ(after & kFlushAndRoundUp, kFlushAndRoundUp);
    }
  }
}
#endif

TEST_P(Kernels, NothingIsAllowed) {
  reduce_into(DType::kFloat32, ReduceOp::kSum, nullptr, nullptr, 0);
  finish(DType::kFloat32, ReduceOp::kAvg, nullptr, 0, 2);
  save_past_cache(nullptr, nullptr, 0);
}

TEST(SavePastCache, CopiesEveryByteAtAnyAlignment) {
  std::mt19937_64 random(1);
  Bytes from(5000);
  for (auto& byte : from) byte = static_cast<std::byte>(random());
  for (size_t bytes : {0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 200, 1000, 4096, 4500}) {
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

TEST(KernelsDeathTest, WhatCannotBeReducedIsOurBug) {
  std::byte data[16] = {};
  EXPECT_DEATH(reduce_into(DType::kBytes, ReduceOp::kSum, data, data + 8, 1), "combine");
  EXPECT_DEATH(reduce_into(DType::kInt32, ReduceOp::kAvg, data, data + 8, 1), "combine");
  EXPECT_DEATH(reduce_into(DType::kFloat32, ReduceOp::kBxor, data, data + 8, 1), "combine");
  EXPECT_DEATH(finish(DType::kInt32, ReduceOp::kAvg, data, 1, 2), "divide");
  EXPECT_DEATH(finish(DType::kFloat32, ReduceOp::kAvg, data, 1, 0), "contributors");
}

}  // namespace
}  // namespace pccl::memory
