// The arithmetic of csrc/memory/kernels.cc on one vector of elements. quantize.cc and threefry.h
// use its vectors, too. A reduce operation combines two vectors. A family defines the content of a
// block of bytes: integers, floats, pairs of 16-bit floats, or bools.
//
// Vectors are compiler vectors (vector_size), lowered to the instructions that the machine has.
// They are passed by reference only: passing them by value would change the calling convention. All
// functions are inlined into callers that may use more instructions than the file was compiled for.
// A product that feeds an addition is exact, or passes through integers first. A compiler that
// fuses a product and a sum into a multiply-add, which rounds only once, thus changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#ifdef __FAST_MATH__
#error "the kernels promise IEEE 754 arithmetic; build them without -ffast-math"
#endif

#define PCCL_INLINE __attribute__((always_inline)) inline

namespace pccl::memory::vector {

template <typename T, size_t kBlockBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBlockBytes)));
};
template <typename T, size_t kBlockBytes>
using Vector = typename VectorOf<T, kBlockBytes>::Type;
template <size_t kBlockBytes>
using Block = Vector<uint32_t, kBlockBytes>;  // raw bytes

// --- Reduce operations: a = a (op) b -------------------------------------------------------------

// The numbers that AVG needs; the other reduce operations use none of them.
struct Averaging {
  float factor_a = 1, factor_b = 1;  // of the operands, for 16-bit floats; powers of two
  float divisor = 1;                 // of the last step
};

struct Sum {
  template <typename V>
  PCCL_INLINE static void apply(V& a, const V& b, const Averaging&) {
    a += b;
  }
};

struct Product {
  template <typename V>
  PCCL_INLINE static void apply(V& a, const V& b, const Averaging&) {
    a *= b;
  }
};

// A NaN in `a` stays, because both comparisons are false. A NaN in `b` is taken: only a NaN is
// unequal to itself.
struct Min {
  template <typename V>
  PCCL_INLINE static void apply(V& a, const V& b, const Averaging&) {
    a = ((b < a) | (b != b)) ? b : a;
  }
};

struct Max {
  template <typename V>
  PCCL_INLINE static void apply(V& a, const V& b, const Averaging&) {
    a = ((b > a) | (b != b)) ? b : a;
  }
};

struct And {
  template <typename V>
  PCCL_INLINE static void apply(V& a, const V& b, const Averaging&) {
    a &= b;
  }
};

struct Or {
  template <typename V>
  PCCL_INLINE static void apply(V& a, const V& b, const Averaging&) {
    a |= b;
  }
};

struct Xor {
  template <typename V>
  PCCL_INLINE static void apply(V& a, const V& b, const Averaging&) {
    a ^= b;
  }
};

// A step of AVG for 16-bit floats; for others it is Sum. Both products are exact: float32 has
// smaller subnormals than both formats, enough for far more contributors than kMembersMax.
struct ScaledSum {
  template <typename V>
  PCCL_INLINE static void apply(V& a, const V& b, const Averaging& averaging) {
    a = a * averaging.factor_a + b * averaging.factor_b;
  }
};

// The last step of AVG.
template <typename Step>
struct AndDivide {
  template <typename V>
  PCCL_INLINE static void apply(V& a, const V& b, const Averaging& averaging) {
    Step::apply(a, b, averaging);
    a /= static_cast<std::remove_cvref_t<decltype(a[0])>>(averaging.divisor);
  }
};

// The last step of AVG for integers. `T`: the type of an element; the vectors are unsigned, so that
// their sum wraps around. The division uses a type that can hold every divisor; an int8_t cannot.
template <typename T>
struct SumAndDivide {
  template <typename V>
  PCCL_INLINE static void apply(V& a, const V& b, const Averaging& averaging) {
    using Narrow = std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>;
    using Quotient = std::conditional_t<(sizeof(T) > sizeof(Narrow)), T, Narrow>;
    using Element = std::remove_cvref_t<decltype(a[0])>;
    const auto divisor = static_cast<Quotient>(averaging.divisor);
    a += b;
    for (size_t i = 0; i < sizeof(V) / sizeof(T); ++i)
      a[i] = static_cast<Element>(static_cast<Quotient>(static_cast<T>(a[i])) / divisor);
  }
};

// Makes every NaN the positive quiet one. Processors, and even two compilations, differ in the
// choice between two NaNs that are added, and in the sign of a new NaN.
template <typename T, typename V>
PCCL_INLINE void unify_nan(V& x) {
  const V nan = V{} + std::numeric_limits<T>::quiet_NaN();
  x = x == x ? x : nan;
}

// --- Families: the content of a block ------------------------------------------------------------

template <typename T, size_t kBlockBytes>
struct Whole {
  static constexpr size_t kBytes = kBlockBytes;
  using Elements = Vector<T, kBytes>;

  template <typename Op>
  PCCL_INLINE static void apply(Block<kBytes>& a, const Block<kBytes>& b,
                                const Averaging& averaging) {
    auto x = (Elements)a;
    const auto y = (Elements)b;
    Op::apply(x, y, averaging);
    if constexpr (std::is_floating_point_v<T>) unify_nan<T>(x);
    a = (Block<kBytes>)x;
  }
};

template <size_t kBlockBytes>
struct Bool {
  static constexpr size_t kBytes = kBlockBytes;
  using Elements = Vector<uint8_t, kBytes>;

  template <typename Op>
  PCCL_INLINE static void apply(Block<kBytes>& a, const Block<kBytes>& b,
                                const Averaging& averaging) {
    auto x = (Block<kBytes>)((Elements)a != 0);  // a true byte has all its bits set
    const auto y = (Block<kBytes>)((Elements)b != 0);
    Op::apply(x, y, averaging);
    a = x & 0x01010101u;
  }
};

template <size_t kBytes>
struct Bfloat16 {
  using Bits = Block<kBytes>;
  using Floats = Vector<float, kBytes>;

  PCCL_INLINE static void widen(Floats& wide, const Bits& bits) { wide = (Floats)(bits << 16); }
  PCCL_INLINE static void narrow(Bits& bits, Floats& wide) {
    unify_nan<float>(wide);
    const auto w = (Bits)wide;
    // Adds half of the last place, or one less if that place is even: so a tie goes to even.
    bits = (w + 0x7fffu + ((w >> 16) & 1u)) >> 16;
  }
};

template <size_t kBytes>
struct Float16 {
  using Bits = Block<kBytes>;
  using Signed = Vector<int32_t, kBytes>;  // for positive numbers: faster comparisons
  using Floats = Vector<float, kBytes>;

  PCCL_INLINE static void widen(Floats& wide, const Bits& bits) {
    const auto magnitude = (Signed)(bits & 0x7fffu);
    // Exponents: 15 in float16 is 127 in float32, and 31 (infinity or NaN) is 255.
    const Signed normal = (magnitude << 13) + (112 << 23);
    const Signed special = normal + (112 << 23);
    // Below the least normal number, the bits count steps of 2^-24.
    const auto steps = (Signed)(__builtin_convertvector(magnitude, Floats) * 0x1p-24f);
    Signed result = magnitude < 0x0400 ? steps : normal;
    result = magnitude >= 0x7c00 ? special : result;
    wide = (Floats)((Bits)result | ((bits & 0x8000u) << 16));
  }
  PCCL_INLINE static void narrow(Bits& bits, Floats& wide) {
    const auto w = (Bits)wide;
    const auto magnitude = (Signed)(w & 0x7fffffffu);
    const Signed rounding = 0xfff + ((magnitude >> 13) & 1);  // as for bfloat16
    const Signed normal = (magnitude - (112 << 23) + rounding) >> 13;
    // The last place of 0.5 is 2^-24. Adding 0.5 makes the processor round a small number to a
    // multiple of a subnormal step.
    const Signed steps = (Signed)((Floats)magnitude + 0.5f) - 0x3f000000;
    const Signed infinity = Signed{} + 0x7c00;
    const Signed nan = Signed{} + 0x7e00;
    // Bounds: 2^-14, the least normal number, and 2^16. Just below 2^16, rounding carries `normal`
    // into infinity by itself.
    Signed result = magnitude < 0x38800000 ? steps : normal;
    result = magnitude >= 0x47800000 ? infinity : result;
    result |= (Signed)((w >> 16) & 0x8000u);
    bits = (Bits)(magnitude > 0x7f800000 ? nan : result);
  }
};

// Two 16-bit floats in each 32-bit word; each is widened to its own float32. Their order in memory
// does not matter.
template <template <size_t> typename Format, size_t kBlockBytes>
struct Pairs {
  static constexpr size_t kBytes = kBlockBytes;

  template <typename Op>
  PCCL_INLINE static void apply(Block<kBytes>& a, const Block<kBytes>& b,
                                const Averaging& averaging) {
    Vector<float, kBytes> x, y;
    Block<kBytes> low, high;
    Format<kBytes>::widen(x, a & 0xffffu);
    Format<kBytes>::widen(y, b & 0xffffu);
    Op::apply(x, y, averaging);
    Format<kBytes>::narrow(low, x);
    Format<kBytes>::widen(x, a >> 16);
    Format<kBytes>::widen(y, b >> 16);
    Op::apply(x, y, averaging);
    Format<kBytes>::narrow(high, x);
    a = low | (high << 16);
  }
};

}  // namespace pccl::memory::vector
