// The arithmetic of one block is written once, over compiler vectors, and compiled twice: for every
// machine, and for wide vectors (see csrc/memory/kernels_vector.h). A short block is padded with
// zeros, which change neither `lo` nor `hi`.
#include "csrc/memory/quantize.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "csrc/base/assert.h"
#include "csrc/base/cpu.h"
#include "csrc/memory/float_mode.h"
#include "csrc/memory/kernels_vector.h"

namespace pccl::memory {
namespace {

using namespace vector;

constexpr size_t kPlainVector = 16, kWideVector = 32;
constexpr uint16_t kNanStep = 0x7fc0;
// A float whose last place is 1. Adding it rounds a number below 2^22 to an integer, to even.
constexpr float kRounder = 0x1.8p23f;
constexpr int32_t kRounderBits = 0x4b400000;

struct Scale {
  uint16_t step = 0;  // bfloat16
  uint8_t zero = 0;
};

float step_of(Scale scale) { return std::bit_cast<float>(uint32_t{scale.step} << 16); }

// ---- Elements as floats -------------------------------------------------------------------------

// Copies a vector, or the part of one that is there. The compiler makes one instruction of a copy
// of known size.
template <size_t kBytes>
PCCL_INLINE void copy(void* to, const void* from, size_t bytes) {
  if (bytes >= kBytes) {
    std::memcpy(to, from, kBytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

PCCL_INLINE void read(auto& vector, const void* from) { std::memcpy(&vector, from, sizeof vector); }

template <template <size_t> typename Format, size_t kBytes>
PCCL_INLINE void widen(const std::byte* from, size_t elements, float* to) {
  for (size_t at = 0; at < elements; at += kBytes / 4) {
    Vector<uint16_t, kBytes / 2> narrow{};
    copy<kBytes / 2>(&narrow, from + at * 2, (elements - at) * 2);
    Vector<float, kBytes> wide;
    Format<kBytes>::widen(wide, __builtin_convertvector(narrow, Block<kBytes>));
    copy<kBytes>(to + at, &wide, (elements - at) * 4);
  }
}

template <template <size_t> typename Format, size_t kBytes>
PCCL_INLINE void narrow(const float* from, size_t elements, std::byte* to) {
  using Halves = Vector<uint16_t, kBytes / 2>;
  for (size_t at = 0; at < elements; at += kBytes / 4) {
    Vector<float, kBytes> wide{};
    copy<kBytes>(&wide, from + at, (elements - at) * 4);
    Block<kBytes> bits;
    Format<kBytes>::narrow(bits, wide);
    const auto halves = __builtin_convertvector(bits, Halves);
    copy<kBytes / 2>(to + at * 2, &halves, (elements - at) * 2);
  }
}

template <size_t kBytes>
PCCL_INLINE void load(DType dtype, const std::byte* from, size_t elements, float* to) {
  if (elements == 0) return;
  if (dtype == DType::kFloat32) {
    std::memcpy(to, from, elements * 4);
  } else if (dtype == DType::kFloat16) {
    widen<Float16, kBytes>(from, elements, to);
  } else {
    widen<Bfloat16, kBytes>(from, elements, to);
  }
}

template <size_t kBytes>
PCCL_INLINE void store(DType dtype, const float* from, size_t elements, std::byte* to) {
  if (elements == 0) return;  // an empty tensor may have no memory
  if (dtype == DType::kFloat32) {
    std::memcpy(to, from, elements * 4);
  } else if (dtype == DType::kFloat16) {
    narrow<Float16, kBytes>(from, elements, to);
  } else {
    narrow<Bfloat16, kBytes>(from, elements, to);
  }
}

// ---- One block ----------------------------------------------------------------------------------

// `x` has whole vectors.
template <size_t kBytes>
PCCL_INLINE Scale scale_of(const float* x, size_t elements, int levels) {
  using Floats = Vector<float, kBytes>;
  using Signed = Vector<int32_t, kBytes>;
  constexpr size_t kLanes = kBytes / 4;
  Floats low{}, high{};
  Signed largest{};
  for (size_t at = 0; at < elements; at += kLanes) {
    Floats v;
    read(v, x + at);
    low = v < low ? v : low;
    high = v > high ? v : high;
    const Signed magnitude = (Signed)v & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  float lo = 0, hi = 0;
  int32_t most = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    lo = std::min(lo, low[lane]);
    hi = std::max(hi, high[lane]);
    most = std::max(most, largest[lane]);
  }
  if (most >= 0x7f800000) return {kNanStep, 0};
  const float part = 1.0f / static_cast<float>(levels);
  const auto bits = std::bit_cast<uint32_t>(hi * part - lo * part);
  const Scale scale{static_cast<uint16_t>((bits + 0xffffu) >> 16), 0};
  if (step_of(scale) < 0x1p-126f) return {};
  const float zero = -lo * (1.0f / step_of(scale)) + kRounder;
  return {scale.step, static_cast<uint8_t>(std::bit_cast<int32_t>(zero) - kRounderBits)};
}

// Element k * words + i is in word i, at bit k * kBits. So a shift turns a vector of elements into
// one of words.
template <size_t kBytes, int kBits>
PCCL_INLINE void encode_block(const float* x, size_t words, Scale scale, std::byte* to) {
  using Floats = Vector<float, kBytes>;
  using Signed = Vector<int32_t, kBytes>;
  const bool plain = scale.step != 0 && scale.step != kNanStep;
  const float inverse = plain ? 1.0f / step_of(scale) : 0.0f;
  const int32_t offset = plain ? kRounderBits - scale.zero : kRounderBits;
  for (size_t at = 0; at < words; at += kBytes / 4) {
    Block<kBytes> word{};
    for (int k = 0; k < 32 / kBits; ++k) {
      Floats v;
      read(v, x + static_cast<size_t>(k) * words + at);
      if (!plain) v = Floats{};  // infinity * 0 is no number
      const Signed code = (Signed)(v * inverse + kRounder) - offset;
      word |= (Block<kBytes>)code << (kBits * k);
    }
    copy<kBytes>(to + 4 * at, &word, (words - at) * 4);
  }
}

template <size_t kBytes, int kBits>
PCCL_INLINE void decode_block(const std::byte* from, size_t words, Scale scale, float* x) {
  using Floats = Vector<float, kBytes>;
  using Signed = Vector<int32_t, kBytes>;
  const float step = step_of(scale);
  for (size_t at = 0; at < words; at += kBytes / 4) {
    Block<kBytes> word{};
    copy<kBytes>(&word, from + 4 * at, (words - at) * 4);
    for (int k = 0; k < 32 / kBits; ++k) {
      const auto code = (Signed)((word >> (kBits * k)) & ((1u << kBits) - 1));
      Floats v = __builtin_convertvector(code - int32_t{scale.zero}, Floats) * step;
      unify_nan<float>(v);
      copy<kBytes>(x + static_cast<size_t>(k) * words + at, &v, (words - at) * 4);
    }
  }
}

// ---- The walk over blocks -----------------------------------------------------------------------

constexpr size_t kFloatsMax = Quantization::kBlockMax;
// Room behind a block: the last word may have less than 8 elements, and the last vector less than 8
// words.
constexpr size_t kPadding = 16;
using Buffer = float[kFloatsMax + kPadding];

size_t words_of(const Quantization& how, size_t elements) {
  const size_t in_word = 32 / how.bits;
  return (elements + in_word - 1) / in_word;
}

size_t blocks_of(const Quantization& how, size_t elements) {
  return (elements + how.block - 1) / how.block;
}

// Where the three parts of a block are on the wire.
template <typename Byte>
struct Place {
  Byte *step, *zero, *codes;
  Place(const Quantization& how, Stretch stretch, Byte* row)
      : step(row + 2 * (stretch.first / how.block)),
        zero(row + 2 * blocks_of(how, stretch.row) + stretch.first / how.block),
        codes(row + 3 * blocks_of(how, stretch.row) +
              4 * words_of(how, how.block) * (stretch.first / how.block)) {}
  void next(size_t bytes) {
    step += 2;
    ++zero;
    codes += bytes;
  }
};

template <size_t kBytes, int kBits>
PCCL_INLINE void encode(const Quantization& how, DType dtype, const std::byte* from,
                        Stretch stretch, std::byte* row) {
  alignas(64) Buffer x;
  Place<std::byte> place(how, stretch, row);
  for (size_t at = 0; at < stretch.count; at += how.block) {
    const size_t here = std::min<size_t>(how.block, stretch.count - at);
    const size_t words = words_of(how, here);
    load<kBytes>(dtype, from + at * element_bytes(dtype), here, x);
    std::fill_n(x + here, kPadding, 0.0f);
    const Scale scale = scale_of<kBytes>(x, here, (1 << kBits) - 2);
    encode_block<kBytes, kBits>(x, words, scale, place.codes);
    std::memcpy(place.step, &scale.step, 2);
    std::memcpy(place.zero, &scale.zero, 1);
    place.next(4 * words);
  }
}

// Calls take(first element, floats, number of elements) for each block. Elements count from the
// start of the stretch.
template <size_t kBytes, int kBits>
PCCL_INLINE void decode(const Quantization& how, const std::byte* row, Stretch stretch,
                        const auto& take) {
  alignas(64) Buffer x;
  Place<const std::byte> place(how, stretch, row);
  for (size_t at = 0; at < stretch.count; at += how.block) {
    const size_t here = std::min<size_t>(how.block, stretch.count - at);
    const size_t words = words_of(how, here);
    Scale scale;
    std::memcpy(&scale.step, place.step, 2);
    std::memcpy(&scale.zero, place.zero, 1);
    decode_block<kBytes, kBits>(place.codes, words, scale, x);
    take(at, x, here);
    place.next(4 * words);
  }
}

template <size_t kBytes>
PCCL_INLINE void decode_bfloat16(const std::byte* from, size_t elements, const auto& take) {
  alignas(64) Buffer x;
  for (size_t at = 0; at < elements; at += kFloatsMax) {
    const size_t here = std::min(kFloatsMax, elements - at);
    load<kBytes>(DType::kBfloat16, from + 2 * at, here, x);
    take(at, x, here);
  }
}

template <size_t kBytes>
PCCL_INLINE void encode_bfloat16(DType dtype, const std::byte* from, size_t elements,
                                 std::byte* to) {
  alignas(64) Buffer x;
  for (size_t at = 0; at < elements; at += kFloatsMax) {
    const size_t here = std::min(kFloatsMax, elements - at);
    load<kBytes>(dtype, from + at * element_bytes(dtype), here, x);
    store<kBytes>(DType::kBfloat16, x, here, to + 2 * at);
  }
}

template <size_t kBytes>
PCCL_INLINE void encode_any(const Quantization& how, DType dtype, const std::byte* from,
                            Stretch stretch, std::byte* row) {
  if (how.bits == 16)
    return encode_bfloat16<kBytes>(dtype, from, stretch.count, row + 2 * stretch.first);
  if (how.bits == 8) return encode<kBytes, 8>(how, dtype, from, stretch, row);
  encode<kBytes, 4>(how, dtype, from, stretch, row);
}

template <size_t kBytes>
PCCL_INLINE void decode_any(const Quantization& how, const std::byte* row, Stretch stretch,
                            const auto& take) {
  if (how.bits == 16) return decode_bfloat16<kBytes>(row + 2 * stretch.first, stretch.count, take);
  if (how.bits == 8) return decode<kBytes, 8>(how, row, stretch, take);
  decode<kBytes, 4>(how, row, stretch, take);
}

template <size_t kBytes>
PCCL_INLINE void decode_into(const Quantization& how, DType dtype, const std::byte* row,
                             Stretch stretch, std::byte* to) {
  const size_t width = element_bytes(dtype);
  const auto take = [&](size_t at, const float* x, size_t here) __attribute__((always_inline)) {
    store<kBytes>(dtype, x, here, to + at * width);
  };
  decode_any<kBytes>(how, row, stretch, take);
}

template <size_t kBytes>
PCCL_INLINE void decode_onto(const Quantization& how, const std::byte* row, Stretch stretch,
                             float* sum) {
  using Floats = Vector<float, kBytes>;
  const auto take = [&](size_t first, const float* x, size_t here) __attribute__((always_inline)) {
    for (size_t at = 0; at < here; at += kBytes / 4) {
      Floats total{}, more;
      copy<kBytes>(&total, sum + first + at, (here - at) * 4);
      read(more, x + at);
      total += more;
      unify_nan<float>(total);
      copy<kBytes>(sum + first + at, &total, (here - at) * 4);
    }
  };
  decode_any<kBytes>(how, row, stretch, take);
}

template <size_t kBytes>
PCCL_INLINE void divide_all(float* sum, size_t elements, float divisor) {
  using Floats = Vector<float, kBytes>;
  for (size_t at = 0; at < elements; at += kBytes / 4) {
    Floats total{};
    copy<kBytes>(&total, sum + at, (elements - at) * 4);
    total /= divisor;
    copy<kBytes>(sum + at, &total, (elements - at) * 4);
  }
}

#if PCCL_X86
PCCL_WIDE void wide_encode(const Quantization& how, DType dtype, const std::byte* from,
                           Stretch stretch, std::byte* row) {
  encode_any<kWideVector>(how, dtype, from, stretch, row);
}
PCCL_WIDE void wide_decode(const Quantization& how, DType dtype, const std::byte* row,
                           Stretch stretch, std::byte* to) {
  decode_into<kWideVector>(how, dtype, row, stretch, to);
}
PCCL_WIDE void wide_add(const Quantization& how, const std::byte* row, Stretch stretch,
                        float* sum) {
  decode_onto<kWideVector>(how, row, stretch, sum);
}
PCCL_WIDE void wide_divide(float* sum, size_t elements, float divisor) {
  divide_all<kWideVector>(sum, elements, divisor);
}
PCCL_WIDE void wide_round(DType dtype, const float* from, size_t elements, std::byte* to) {
  store<kWideVector>(dtype, from, elements, to);
}
#else
constexpr auto wide_encode = encode_any<kPlainVector>;
constexpr auto wide_decode = decode_into<kPlainVector>;
constexpr auto wide_add = decode_onto<kPlainVector>;
constexpr auto wide_divide = divide_all<kPlainVector>;
constexpr auto wide_round = store<kPlainVector>;
#endif

void check(const Quantization& how) {
  const bool blocks = std::has_single_bit(how.block) && how.block >= Quantization::kBlockMin &&
                      how.block <= Quantization::kBlockMax;
  PCCL_ASSERT(how.bits == 16 || ((how.bits == 8 || how.bits == 4) && blocks));
}

void check(const Quantization& how, Stretch stretch) {
  check(how);
  const size_t end = stretch.first + stretch.count;
  PCCL_ASSERT(end <= stretch.row);
  PCCL_ASSERT(how.bits == 16 || stretch.first % how.block == 0);
  PCCL_ASSERT(how.bits == 16 || end % how.block == 0 || end == stretch.row);
}

}  // namespace

uint64_t quantized_bytes(const Quantization& how, uint64_t elements) {
  check(how);
  if (how.bits == 16) return 2 * elements;
  const uint64_t words =
      elements / how.block * words_of(how, how.block) + words_of(how, elements % how.block);
  return 3 * blocks_of(how, elements) + 4 * words;
}

void quantize(const Quantization& how, DType dtype, const std::byte* from, Stretch stretch,
              std::byte* row) {
  check(how, stretch);
  PCCL_ASSERT(is_quantizable(dtype));
  const PlainFloatMode mode;
  const auto run = has_wide_vectors() ? wide_encode : encode_any<kPlainVector>;
  run(how, dtype, from, stretch, row);
}

void dequantize(const Quantization& how, DType dtype, const std::byte* row, Stretch stretch,
                std::byte* to) {
  check(how, stretch);
  PCCL_ASSERT(is_quantizable(dtype));
  const PlainFloatMode mode;
  const auto run = has_wide_vectors() ? wide_decode : decode_into<kPlainVector>;
  run(how, dtype, row, stretch, to);
}

void add_dequantized(const Quantization& how, const std::byte* row, Stretch stretch, float* sum) {
  check(how, stretch);
  const PlainFloatMode mode;
  const auto run = has_wide_vectors() ? wide_add : decode_onto<kPlainVector>;
  run(how, row, stretch, sum);
}

void divide(float* sum, size_t elements, int divisor) {
  const PlainFloatMode mode;
  const auto run = has_wide_vectors() ? wide_divide : divide_all<kPlainVector>;
  run(sum, elements, static_cast<float>(divisor));
}

void round_to(DType dtype, const float* from, size_t elements, std::byte* to) {
  PCCL_ASSERT(is_quantizable(dtype));
  const PlainFloatMode mode;
  const auto run = has_wide_vectors() ? wide_round : store<kPlainVector>;
  run(dtype, from, elements, to);
}

}  // namespace pccl::memory
