// The arithmetic of one block is written once, over compiler vectors, and compiled three times: for
// every machine, and for two widths of vectors that not every machine has (see
// csrc/memory/kernels_vector.h). A short block is padded with zeros, which change neither `lo` nor
// `hi`.
#include "csrc/memory/quantize.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "csrc/base/assert.h"
#include "csrc/base/cpu.h"
#include "csrc/memory/float_mode.h"
#include "csrc/memory/kernels_vector.h"
#include "csrc/memory/threefry.h"

namespace pccl::memory {
namespace {

using namespace vector;

constexpr uint16_t kNanScale = 0x7fc0;
// The last bit of this float has the value 1. Adding the float to a number below 2^22 rounds the
// number to the nearest integer, and a tie to even.
constexpr float kRounder = 0x1.8p23f;
constexpr int32_t kRounderBits = 0x4b400000;

constexpr size_t kFloatsMax = Quantization::kBlockMax;
// Room behind a block: the last word may have fewer than 8 elements, and the last vector fewer than
// 16 words.
constexpr size_t kPadding = 32;
using Buffer = float[kFloatsMax + kPadding];

// A code stands for (code - zero) * scale.
struct Affine {
  uint16_t scale = 0;  // bfloat16
  uint8_t zero = 0;
};

float scale_of(Affine affine) { return std::bit_cast<float>(uint32_t{affine.scale} << 16); }

// ---- Elements as floats -------------------------------------------------------------------------

// Copies a whole vector, or `bytes` bytes if there are fewer. The size of a whole vector is known
// when this is compiled, so one instruction copies it.
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

template <typename T, size_t kBytes>
PCCL_INLINE T greatest(const Vector<T, kBytes>& v) {
  if constexpr (kBytes == 16) {
    return std::max(std::max(v[0], v[1]), std::max(v[2], v[3]));
  } else {
    Vector<T, kBytes / 2> a, b;
    read(a, &v);
    read(b, reinterpret_cast<const std::byte*>(&v) + kBytes / 2);
    a = a > b ? a : b;
    return greatest<T, kBytes / 2>(a);
  }
}

// Returns the scale and the zero point of a block. `x` points to its floats, padded to whole
// vectors. If the block is rounded at random, its zero point is rounded up, so that no code is
// below 0.
template <size_t kBytes, bool kRandom>
PCCL_INLINE Affine affine_of(const std::byte* x, size_t elements, int levels) {
  using Floats = Vector<float, kBytes>;
  using Signed = Vector<int32_t, kBytes>;
  Floats low{}, high{};
  Signed largest{};
  for (size_t at = 0; at < elements; at += kBytes / 4) {
    Floats v;
    read(v, x + 4 * at);
    low = v < low ? v : low;
    high = v > high ? v : high;
    const Signed magnitude = (Signed)v & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  if (greatest<int32_t, kBytes>(largest) >= 0x7f800000) return {kNanScale, 0};
  const float lo = -greatest<float, kBytes>(-low), hi = greatest<float, kBytes>(high);
  const float part = 1.0f / static_cast<float>(levels);
  const auto bits = std::bit_cast<uint32_t>(hi * part - lo * part);
  const Affine affine{static_cast<uint16_t>((bits + 0xffffu) >> 16), 0};
  if (scale_of(affine) < 0x1p-126f) return {};
  const float exact = -lo * (1.0f / scale_of(affine));
  const float zero = exact + kRounder;
  int32_t code = std::bit_cast<int32_t>(zero) - kRounderBits;
  if (kRandom && zero - kRounder < exact) ++code;
  return {affine.scale, static_cast<uint8_t>(code)};
}

// The random numbers of a block. An element that is at bit k * kBits of a word uses 16 of the 64
// bits that threefry makes from the number of that word in the tensor, and from k / 4.
struct Draws {
  ThreefryKey key;
  uint64_t word = 0;  // number of the block's first word
};

template <size_t kBytes>
PCCL_INLINE void draw(const Draws& draws, size_t at, uint32_t part, Block<kBytes>& a,
                      Block<kBytes>& b) {
  static constexpr uint32_t kLane[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  read(a, kLane);
  a += static_cast<uint32_t>(draws.word + at);  // no carry: a block has 2^n words
  b = Block<kBytes>{};
  b += static_cast<uint32_t>(draws.word >> 32) << 1 | part;
  threefry(draws.key, a, b);
}

// Turns 16 random bits into a number from 2^-16 - 1/2 to 1/2 - 2^-16, evenly distributed. Added to
// an integer below 2^8, the shift does not change its rounding. Added to a number between two
// integers, the sum is rounded to one of these two.
template <size_t kBytes>
PCCL_INLINE void to_shift(const Block<kBytes>& bits, Vector<float, kBytes>& shift) {
  using Floats = Vector<float, kBytes>;
  shift = __builtin_convertvector((Vector<int32_t, kBytes>)(bits | 1u) - 0x8000, Floats) * 0x1p-16f;
}

// The output for a block: its codes, the numbers that they decode to, or both.
enum class Makes { kCodes, kNumbers, kBoth };

// Returns the factor that codes are multiplied by. If the scale is not finite, all products are the
// positive quiet NaN, whatever scale was sent.
float factor_of(Affine affine) {
  return (affine.scale & 0x7f80) == 0x7f80 ? std::bit_cast<float>(uint32_t{kNanScale} << 16)
                                           : scale_of(affine);
}

// Returns how many numbers of the vector at word `at` are elements of the block. The first number
// is the element with index `element`. kWhole: the block has no padding, and each vector is full.
template <size_t kBytes, bool kWhole>
PCCL_INLINE size_t count_of(size_t element, size_t at, size_t words, size_t elements) {
  if constexpr (kWhole) return kBytes / 4;
  return element < elements ? std::min(words - at, elements - element) : 0;
}

// Element k * words + i is in word i, at bit k * kBits. So a shift turns a vector of elements into
// one of words. Calls put(element, count, vector) with the decoded values of the codes. `x` points
// to floats.
template <size_t kBytes, int kBits, bool kWhole, bool kRandom, Makes kMakes>
PCCL_INLINE void encode_block(const std::byte* x, size_t elements, size_t words, Affine affine,
                              const Draws& draws, std::byte* codes, auto& put) {
  using Floats = Vector<float, kBytes>;
  using Signed = Vector<int32_t, kBytes>;
  constexpr int32_t kMost = (1 << kBits) - 1;
  const bool plain = affine.scale != 0 && affine.scale != kNanScale;  // infinity * 0 is no number
  const float factor = factor_of(affine), inverse = plain ? 1.0f / factor : 0.0f;
  const int32_t offset = kRounderBits - affine.zero;
  for (size_t at = 0; at < words; at += kBytes / 4) {
    Block<kBytes> word{}, early{}, late{};  // random bits
#pragma GCC unroll 8
    for (int k = 0; k < 32 / kBits; ++k) {
      const size_t element = static_cast<size_t>(k) * words + at;
      Floats v;
      read(v, x + 4 * element);
      if (!plain) v = Floats{};
      v *= inverse;
      if constexpr (kRandom) {
        if (k % 4 == 0) draw<kBytes>(draws, at, static_cast<uint32_t>(k) / 4, early, late);
        const Block<kBytes>& both = k % 4 < 2 ? early : late;
        Floats shift;
        to_shift<kBytes>(k % 2 == 0 ? both & 0xffffu : both >> 16, shift);
        v += shift;
      }
      Signed code = (Signed)(v + kRounder) - offset;
      if constexpr (kRandom) code = code < kMost ? code : Signed{} + kMost;
      if constexpr (kMakes != Makes::kNumbers) word |= (Block<kBytes>)code << (kBits * k);
      if constexpr (kMakes == Makes::kCodes) continue;
      v = __builtin_convertvector(code - int32_t{affine.zero}, Floats) * factor;
      put(element, count_of<kBytes, kWhole>(element, at, words, elements), v);
    }
    const size_t here = kWhole ? kBytes : (words - at) * 4;
    if constexpr (kMakes != Makes::kNumbers) copy<kBytes>(codes + 4 * at, &word, here);
  }
}

template <size_t kBytes, int kBits, bool kWhole>
PCCL_INLINE void decode_block(const std::byte* from, size_t elements, size_t words, Affine affine,
                              auto& put) {
  using Floats = Vector<float, kBytes>;
  using Signed = Vector<int32_t, kBytes>;
  const float factor = factor_of(affine);
  for (size_t at = 0; at < words; at += kBytes / 4) {
    Block<kBytes> word{};
    copy<kBytes>(&word, from + 4 * at, kWhole ? kBytes : (words - at) * 4);
#pragma GCC unroll 8
    for (int k = 0; k < 32 / kBits; ++k) {
      const size_t element = static_cast<size_t>(k) * words + at;
      const auto code = (Signed)((word >> (kBits * k)) & ((1u << kBits) - 1));
      Floats v = __builtin_convertvector(code - int32_t{affine.zero}, Floats) * factor;
      put(element, count_of<kBytes, kWhole>(element, at, words, elements), v);
    }
  }
}

// ---- Where numbers go ---------------------------------------------------------------------------

// A sink takes the numbers of a stretch, block by block: begin(), then vectors of numbers, then
// end(). A vector comes with the index of its first element in the block, and with the count of its
// numbers that are elements.

// Writes floats, or adds them to those that are there.
template <bool kAdds>
struct ToFloats {
  std::byte* to;
  std::byte* block = nullptr;

  PCCL_INLINE void begin(size_t at, size_t) { block = to + 4 * at; }
  PCCL_INLINE void operator()(size_t at, size_t count, auto& v) const {
    if constexpr (kAdds) {
      std::remove_reference_t<decltype(v)> total{};
      copy<sizeof v>(&total, block + 4 * at, 4 * count);
      v += total;
      unify_nan<float>(v);
    }
    copy<sizeof v>(block + 4 * at, &v, 4 * count);
  }
  PCCL_INLINE void end() const {}
};

// Writes 16-bit floats.
template <size_t kBytes>
struct ToHalves {
  PCCL_INLINE ToHalves(DType type, std::byte* where) : dtype(type), to(where) {}
  DType dtype;
  std::byte* to;
  alignas(64) Buffer floats;
  size_t first = 0, elements = 0;

  PCCL_INLINE void begin(size_t at, size_t here) {
    first = at;
    elements = here;
  }
  PCCL_INLINE void operator()(size_t at, size_t count, auto& v) {
    copy<sizeof v>(floats + at, &v, 4 * count);
  }
  PCCL_INLINE void end() const { store<kBytes>(dtype, floats, elements, to + 2 * first); }
};

// ---- The walk over blocks -----------------------------------------------------------------------

size_t words_of(const Quantization& how, size_t elements) {
  const size_t in_word = 32 / how.bits;
  return (elements + in_word - 1) / in_word;
}

size_t blocks_of(const Quantization& how, size_t elements) {
  return (elements + how.block - 1) / how.block;
}

// The places of the three parts of a block on the wire.
template <typename Byte>
struct Place {
  Byte *scale, *zero, *codes;
  Place(const Quantization& how, Stretch stretch, Byte* row)
      : scale(row + 2 * (stretch.first / how.block)),
        zero(row + 2 * blocks_of(how, stretch.row) + stretch.first / how.block),
        codes(row + 3 * blocks_of(how, stretch.row) +
              4 * words_of(how, how.block) * (stretch.first / how.block)) {}
  void next(size_t bytes) {
    scale += 2;
    ++zero;
    codes += bytes;
  }
};

// Numbers that are to be encoded.
struct Input {
  const Quantization& how;
  DType dtype;
  const std::byte* from;
  Stretch stretch;
  std::byte* row;  // null: no codes are made
  const Rounding& rounding;
};

// The last block, or a tiny block, may not fill whole vectors of this width. It is encoded with the
// narrowest vectors.
template <size_t kBytes, int kBits, bool kRandom, Makes kMakes>
PCCL_INLINE void encode(const Input& input, auto& sink) {
  const auto& [how, dtype, from, stretch, row, rounding] = input;
  alignas(64) Buffer buffer;
  std::byte* const none = reinterpret_cast<std::byte*>(buffer);
  Place<std::byte> place(how, stretch, kMakes == Makes::kNumbers ? none : row);
  Draws draws{ThreefryKey(rounding.key), 0};
  for (size_t at = 0; at < stretch.count; at += how.block) {
    const size_t here = std::min<size_t>(how.block, stretch.count - at);
    const size_t words = words_of(how, here);
    const std::byte* x = from + at * element_bytes(dtype);
    const bool whole = here == how.block && words % (kBytes / 4) == 0;
    if (dtype != DType::kFloat32 || !whole) {
      load<kBytes>(dtype, x, here, buffer);
      std::fill_n(buffer + here, kPadding, 0.0f);
      x = none;
    }
    const Affine affine = affine_of<kBytes, kRandom>(x, here, (1 << kBits) - 2);
    draws.word = (rounding.first + stretch.first + at) / how.block * words_of(how, how.block);
    if constexpr (kMakes != Makes::kCodes) sink.begin(at, here);
    if (whole) {
      encode_block<kBytes, kBits, true, kRandom, kMakes>(x, here, words, affine, draws, place.codes,
                                                         sink);
    } else {
      encode_block<16, kBits, false, kRandom, kMakes>(x, here, words, affine, draws, place.codes,
                                                      sink);
    }
    if constexpr (kMakes != Makes::kCodes) sink.end();
    if constexpr (kMakes == Makes::kNumbers) continue;
    std::memcpy(place.scale, &affine.scale, 2);
    std::memcpy(place.zero, &affine.zero, 1);
    place.next(4 * words);
  }
}

template <size_t kBytes, int kBits>
PCCL_INLINE void decode(const Quantization& how, const std::byte* row, Stretch stretch,
                        auto& sink) {
  Place<const std::byte> place(how, stretch, row);
  for (size_t at = 0; at < stretch.count; at += how.block) {
    const size_t here = std::min<size_t>(how.block, stretch.count - at);
    const size_t words = words_of(how, here);
    Affine affine;
    std::memcpy(&affine.scale, place.scale, 2);
    std::memcpy(&affine.zero, place.zero, 1);
    sink.begin(at, here);
    if (here == how.block && words % (kBytes / 4) == 0) {
      decode_block<kBytes, kBits, true>(place.codes, here, words, affine, sink);
    } else {
      decode_block<16, kBits, false>(place.codes, here, words, affine, sink);
    }
    sink.end();
    place.next(4 * words);
  }
}

template <size_t kBytes>
PCCL_INLINE void decode_bfloat16(const std::byte* from, size_t elements, auto& sink) {
  for (size_t at = 0; at < elements; at += kFloatsMax) {
    const size_t here = std::min(kFloatsMax, elements - at);
    sink.begin(at, here);
    for (size_t i = 0; i < here; i += kBytes / 4) {
      Vector<uint16_t, kBytes / 2> half{};
      copy<kBytes / 2>(&half, from + 2 * (at + i), 2 * (here - i));
      Vector<float, kBytes> v;
      Bfloat16<kBytes>::widen(v, __builtin_convertvector(half, Block<kBytes>));
      sink(i, here - i, v);
    }
    sink.end();
  }
}

template <size_t kBytes, Makes kMakes>
PCCL_INLINE void encode_bfloat16(const Input& input, auto& sink) {
  alignas(64) Buffer x;
  for (size_t at = 0; at < input.stretch.count; at += kFloatsMax) {
    const size_t here = std::min(kFloatsMax, input.stretch.count - at);
    load<kBytes>(input.dtype, input.from + at * element_bytes(input.dtype), here, x);
    if constexpr (kMakes != Makes::kNumbers)
      store<kBytes>(DType::kBfloat16, x, here, input.row + 2 * (input.stretch.first + at));
    if constexpr (kMakes == Makes::kCodes) continue;
    sink.begin(at, here);
    for (size_t i = 0; i < here; i += kBytes / 4) {
      Vector<float, kBytes> v;
      Block<kBytes> bits;
      read(v, x + i);
      Bfloat16<kBytes>::narrow(bits, v);
      Bfloat16<kBytes>::widen(v, bits);
      sink(i, here - i, v);
    }
    sink.end();
  }
}

template <size_t kBytes, Makes kMakes>
PCCL_INLINE void encode_any(const Input& input, auto& sink) {
  if (input.how.bits == 16) return encode_bfloat16<kBytes, kMakes>(input, sink);
  if (input.how.bits == 8 && input.rounding.random)
    return encode<kBytes, 8, true, kMakes>(input, sink);
  if (input.how.bits == 8) return encode<kBytes, 8, false, kMakes>(input, sink);
  if (input.rounding.random) return encode<kBytes, 4, true, kMakes>(input, sink);
  encode<kBytes, 4, false, kMakes>(input, sink);
}

template <size_t kBytes>
PCCL_INLINE void decode_any(const Quantization& how, const std::byte* row, Stretch stretch,
                            auto& sink) {
  if (how.bits == 16) return decode_bfloat16<kBytes>(row + 2 * stretch.first, stretch.count, sink);
  if (how.bits == 8) return decode<kBytes, 8>(how, row, stretch, sink);
  decode<kBytes, 4>(how, row, stretch, sink);
}

// ---- For each width of vectors ------------------------------------------------------------------

template <size_t kBytes>
struct Functions {
  PCCL_INLINE static void make_codes(const Input& input) {
    ToFloats<false> none{nullptr};
    encode_any<kBytes, Makes::kCodes>(input, none);
  }
  PCCL_INLINE static void make_both(const Input& input, float* to) {
    ToFloats<false> sink{reinterpret_cast<std::byte*>(to)};
    encode_any<kBytes, Makes::kBoth>(input, sink);
  }
  PCCL_INLINE static void make_numbers(const Input& input, float* to, bool adds) {
    auto* const bytes = reinterpret_cast<std::byte*>(to);
    ToFloats<false> sets{bytes};
    ToFloats<true> sums{bytes};
    if (adds) return encode_any<kBytes, Makes::kNumbers>(input, sums);
    encode_any<kBytes, Makes::kNumbers>(input, sets);
  }
  PCCL_INLINE static void decode(const Quantization& how, DType dtype, const std::byte* row,
                                 Stretch stretch, std::byte* to) {
    if (dtype == DType::kFloat32) {
      ToFloats<false> sink{to};
      return decode_any<kBytes>(how, row, stretch, sink);
    }
    ToHalves<kBytes> sink(dtype, to);
    decode_any<kBytes>(how, row, stretch, sink);
  }
  PCCL_INLINE static void add(const Quantization& how, const std::byte* row, Stretch stretch,
                              float* sum) {
    ToFloats<true> sink{reinterpret_cast<std::byte*>(sum)};
    decode_any<kBytes>(how, row, stretch, sink);
  }
  PCCL_INLINE static void divide(float* sum, size_t elements, float divisor) {
    for (size_t at = 0; at < elements; at += kBytes / 4) {
      Vector<float, kBytes> total{};
      copy<kBytes>(&total, sum + at, (elements - at) * 4);
      total /= divisor;
      copy<kBytes>(sum + at, &total, (elements - at) * 4);
    }
  }
  PCCL_INLINE static void round(DType dtype, const float* from, size_t elements, std::byte* to) {
    store<kBytes>(dtype, from, elements, to);
  }
};

// The functions of Functions<kBytes>, compiled for one set of instructions. An attribute cannot be
// in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define PCCL_DEFINE_CODEC(Name, target, kBytes)                                                \
  struct Name {                                                                                \
    using Do = Functions<kBytes>;                                                              \
    target static void make_codes(const Input& input) { Do::make_codes(input); }               \
    target static void make_both(const Input& input, float* to) { Do::make_both(input, to); }  \
    target static void make_numbers(const Input& input, float* to, bool adds) {                \
      Do::make_numbers(input, to, adds);                                                       \
    }                                                                                          \
    target static void decode(const Quantization& how, DType dtype, const std::byte* row,      \
                              Stretch stretch, std::byte* to) {                                \
      Do::decode(how, dtype, row, stretch, to);                                                \
    }                                                                                          \
    target static void add(const Quantization& how, const std::byte* row, Stretch stretch,     \
                           float* sum) {                                                       \
      Do::add(how, row, stretch, sum);                                                         \
    }                                                                                          \
    target static void divide(float* sum, size_t elements, float divisor) {                    \
      Do::divide(sum, elements, divisor);                                                      \
    }                                                                                          \
    target static void round(DType dtype, const float* from, size_t elements, std::byte* to) { \
      Do::round(dtype, from, elements, to);                                                    \
    }                                                                                          \
  }
// NOLINTEND(bugprone-macro-parentheses)

PCCL_DEFINE_CODEC(Plain, , 16);
#if PCCL_X86
PCCL_DEFINE_CODEC(Wide, PCCL_WIDE, 32);
PCCL_DEFINE_CODEC(Widest, PCCL_WIDEST, 64);
#endif
#undef PCCL_DEFINE_CODEC

// Returns the largest number of floats that a vector may have: the number of words of a block.
size_t vector_of(const Quantization& how) { return how.bits == 16 ? 16 : words_of(how, how.block); }

// Calls run(codec) with the fastest codec of this machine whose vectors have at most `floats`
// floats.
void with_codec([[maybe_unused]] size_t floats, const auto& run) {
  const PlainFloatMode mode;
#if PCCL_X86
  if (has_widest_vectors() && floats >= 16) return run(Widest());
  if (has_wide_vectors() && floats >= 8) return run(Wide());
#endif
  run(Plain());
}

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

void check(const Quantization& how, Stretch stretch, const Rounding& rounding) {
  check(how, stretch);
  PCCL_ASSERT(how.bits == 16 || !rounding.random || rounding.first % how.block == 0);
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
              std::byte* row, const Rounding& rounding) {
  check(how, stretch, rounding);
  PCCL_ASSERT(is_quantizable(dtype));
  const Input input{how, dtype, from, stretch, row, rounding};
  with_codec(vector_of(how), [&](auto codec) { codec.make_codes(input); });
}

void quantize_both(const Quantization& how, const float* from, Stretch stretch, std::byte* row,
                   float* to, const Rounding& rounding) {
  check(how, stretch, rounding);
  const auto* const bytes = reinterpret_cast<const std::byte*>(from);
  const Input input{how, DType::kFloat32, bytes, stretch, row, rounding};
  with_codec(vector_of(how), [&](auto codec) { codec.make_both(input, to); });
}

namespace {
void make_numbers(const Quantization& how, DType dtype, const std::byte* from, Stretch stretch,
                  float* to, const Rounding& rounding, bool adds) {
  check(how, stretch, rounding);
  PCCL_ASSERT(is_quantizable(dtype));
  const Input input{how, dtype, from, stretch, nullptr, rounding};
  with_codec(vector_of(how), [&](auto codec) { codec.make_numbers(input, to, adds); });
}
}  // namespace

void set_quantized(const Quantization& how, DType dtype, const std::byte* from, Stretch stretch,
                   float* to, const Rounding& rounding) {
  make_numbers(how, dtype, from, stretch, to, rounding, false);
}

void add_quantized(const Quantization& how, DType dtype, const std::byte* from, Stretch stretch,
                   float* sum, const Rounding& rounding) {
  make_numbers(how, dtype, from, stretch, sum, rounding, true);
}

void dequantize(const Quantization& how, DType dtype, const std::byte* row, Stretch stretch,
                std::byte* to) {
  check(how, stretch);
  PCCL_ASSERT(is_quantizable(dtype));
  with_codec(vector_of(how), [&](auto codec) { codec.decode(how, dtype, row, stretch, to); });
}

void add_dequantized(const Quantization& how, const std::byte* row, Stretch stretch, float* sum) {
  check(how, stretch);
  with_codec(vector_of(how), [&](auto codec) { codec.add(how, row, stretch, sum); });
}

void divide(float* sum, size_t elements, int divisor) {
  with_codec(16, [&](auto codec) { codec.divide(sum, elements, static_cast<float>(divisor)); });
}

void round_to(DType dtype, const float* from, size_t elements, std::byte* to) {
  PCCL_ASSERT(is_quantizable(dtype));
  with_codec(16, [&](auto codec) { codec.round(dtype, from, elements, to); });
}

}  // namespace pccl::memory
