// The arithmetic is in csrc/memory/kernels_vector.h; here run() walks a span block by block. The
// last, partial block goes through the same vector code in a padded copy, so the end of a span
// cannot change a bit. Each family and operation is compiled twice: for every machine, and for wide
// vectors.
#include "csrc/memory/kernels.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "csrc/base/assert.h"
#include "csrc/base/cpu.h"
#include "csrc/memory/float_mode.h"
#include "csrc/memory/kernels_vector.h"

#if PCCL_X86
#include <immintrin.h>
#endif

namespace pccl::memory {
namespace {

using namespace vector;

constexpr size_t kPortableBytes = 16;  // bytes of a vector that every processor with vectors has

// --- The walk over a span ------------------------------------------------------------------------

// Averaging comes by value: the compiler then knows that no store to `to` changes it.
using Kernel = void (*)(std::byte* to, const std::byte* a, const std::byte* b, size_t bytes,
                        Averaging averaging);

template <typename Family, typename Op>
PCCL_INLINE void run(std::byte* to, const std::byte* a, const std::byte* b, size_t bytes,
                     Averaging averaging) {
  Block<Family::kBytes> x, y;
  size_t at = 0;
  for (; at + sizeof x <= bytes; at += sizeof x) {
    std::memcpy(&x, a + at, sizeof x);
    std::memcpy(&y, b + at, sizeof y);
    Family::template apply<Op>(x, y, averaging);
    std::memcpy(to + at, &x, sizeof x);
  }
  if (at == bytes) return;
  x = y = Block<Family::kBytes>{};
  std::memcpy(&x, a + at, bytes - at);
  std::memcpy(&y, b + at, bytes - at);
  Family::template apply<Op>(x, y, averaging);
  std::memcpy(to + at, &x, bytes - at);
}

template <typename Family, typename Op>
void portable(std::byte* to, const std::byte* a, const std::byte* b, size_t bytes,
              Averaging averaging) {
  run<Family, Op>(to, a, b, bytes, averaging);
}

#if PCCL_X86
constexpr size_t kWideBytes = 32;

template <typename Family, typename Op>
PCCL_WIDE void wide(std::byte* to, const std::byte* a, const std::byte* b, size_t bytes,
                    Averaging averaging) {
  run<Family, Op>(to, a, b, bytes, averaging);
}

template <typename Op>
PCCL_WIDE __m128i combine_float16(__m128i a, __m128i b, Averaging averaging) {
  auto x = (Vector<float, kWideBytes>)_mm256_cvtph_ps(a);
  auto y = (Vector<float, kWideBytes>)_mm256_cvtph_ps(b);
  // A barrier. Without it, a compiler may compare before it widens, and then compares one element
  // at a time.
  asm("" : "+x"(x), "+x"(y));
  Op::apply(x, y, averaging);
  unify_nan<float>(x);
  return _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
}

// run() for float16 with the processor's own conversions: the same bits as Float16, many times
// faster.
template <typename Op>
PCCL_WIDE void wide_float16(std::byte* to, const std::byte* a, const std::byte* b, size_t bytes,
                            Averaging averaging) {
  __m128i x, y;
  size_t at = 0;
  for (; at + sizeof x <= bytes; at += sizeof x) {
    std::memcpy(&x, a + at, sizeof x);
    std::memcpy(&y, b + at, sizeof y);
    x = combine_float16<Op>(x, y, averaging);
    std::memcpy(to + at, &x, sizeof x);
  }
  if (at == bytes) return;
  x = y = __m128i{};
  std::memcpy(&x, a + at, bytes - at);
  std::memcpy(&y, b + at, bytes - at);
  x = combine_float16<Op>(x, y, averaging);
  std::memcpy(to + at, &x, bytes - at);
}
#endif

// --- The choice of the code for each call --------------------------------------------------------

// Each of these is an element type; Family is its family for vectors of kBytes bytes.
template <typename T>
struct WholeOf {
  template <size_t kBytes>
  using Family = Whole<T, kBytes>;
};
template <template <size_t> typename Format>
struct PairsOf {
  template <size_t kBytes>
  using Family = Pairs<Format, kBytes>;
};
struct BoolOf {
  template <size_t kBytes>
  using Family = Bool<kBytes>;
};

template <typename Type, typename Op>
Kernel kernel() {
#if PCCL_X86
  if (has_wide_vectors()) {
    if constexpr (std::is_same_v<Type, PairsOf<Float16>>) {
      return wide_float16<Op>;
    } else {
      return wide<typename Type::template Family<kWideBytes>, Op>;
    }
  }
#endif
  return portable<typename Type::template Family<kPortableBytes>, Op>;
}

// Signs matter only to MIN, MAX and the division of AVG. All else is done unsigned, where overflow
// is defined to wrap around.
template <typename T>
Kernel integer_kernel(ReduceOp op, bool last) {
  using Signless = WholeOf<std::make_unsigned_t<T>>;
  switch (op) {
    case ReduceOp::kSum: return kernel<Signless, Sum>();
    case ReduceOp::kProduct: return kernel<Signless, Product>();
    case ReduceOp::kMin: return kernel<WholeOf<T>, Min>();
    case ReduceOp::kMax: return kernel<WholeOf<T>, Max>();
    case ReduceOp::kBand: return kernel<Signless, And>();
    case ReduceOp::kBor: return kernel<Signless, Or>();
    case ReduceOp::kBxor: return kernel<Signless, Xor>();
    case ReduceOp::kAvg:
      return last ? kernel<Signless, SumAndDivide<T>>() : kernel<Signless, Sum>();
  }
  return nullptr;
}

template <typename Type, typename AverageStep>
Kernel float_kernel(ReduceOp op, bool last) {
  switch (op) {
    case ReduceOp::kSum: return kernel<Type, Sum>();
    case ReduceOp::kAvg:
      return last ? kernel<Type, AndDivide<AverageStep>>() : kernel<Type, AverageStep>();
    case ReduceOp::kProduct: return kernel<Type, Product>();
    case ReduceOp::kMin: return kernel<Type, Min>();
    case ReduceOp::kMax: return kernel<Type, Max>();
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor: break;
  }
  return nullptr;
}

Kernel bool_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor: return kernel<BoolOf, Or>();
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand: return kernel<BoolOf, And>();
    case ReduceOp::kBxor: return kernel<BoolOf, Xor>();
    case ReduceOp::kAvg: break;
  }
  return nullptr;
}

// The kernel of a step; `last`: it adds the last contribution.
Kernel kernel_for(DType dtype, ReduceOp op, bool last) {
  switch (dtype) {
    case DType::kUint8: return integer_kernel<uint8_t>(op, last);
    case DType::kInt8: return integer_kernel<int8_t>(op, last);
    case DType::kInt16: return integer_kernel<int16_t>(op, last);
    case DType::kInt32: return integer_kernel<int32_t>(op, last);
    case DType::kInt64: return integer_kernel<int64_t>(op, last);
    case DType::kUint16: return integer_kernel<uint16_t>(op, last);
    case DType::kUint32: return integer_kernel<uint32_t>(op, last);
    case DType::kUint64: return integer_kernel<uint64_t>(op, last);
    case DType::kFloat16: return float_kernel<PairsOf<Float16>, ScaledSum>(op, last);
    case DType::kBfloat16: return float_kernel<PairsOf<Bfloat16>, ScaledSum>(op, last);
    case DType::kFloat32: return float_kernel<WholeOf<float>, Sum>(op, last);
    case DType::kFloat64: return float_kernel<WholeOf<double>, Sum>(op, last);
    case DType::kBool: return bool_kernel(op);
    case DType::kBytes: break;
  }
  return nullptr;
}

Averaging averaging_of(const Reduction& reduction, int held) {
  PCCL_ASSERT(1 <= held && held < reduction.contributors);
  const auto divisor = static_cast<float>(divisor_of(reduction));
  if (!is_floating(reduction.dtype) || element_bytes(reduction.dtype) > 2)
    return {.divisor = divisor};
  const float scale =
      1.0f / static_cast<float>(std::bit_ceil(static_cast<unsigned>(reduction.contributors)));
  return {held == 1 ? scale : 1, scale, scale * divisor};
}

}  // namespace

void reduce(const Reduction& reduction, int held, std::byte* destination, const std::byte* partial,
            const std::byte* contribution, size_t elements) {
  const auto [dtype, op, contributors, absent] = reduction;
  const Kernel combine = kernel_for(dtype, op, held + 1 == contributors);
  PCCL_ASSERT(combine != nullptr);
  const Averaging averaging = op == ReduceOp::kAvg ? averaging_of(reduction, held) : Averaging{};
  const PlainFloatMode mode;
  combine(destination, partial, contribution, elements * element_bytes(dtype), averaging);
}

#if PCCL_X86
namespace {

constexpr size_t kLine = 64;

// REQUIRES: `to` starts a line. Copies whole lines. All loads of a line come before its stores, so
// that the line leaves the write buffer at once. The prefetch crosses the ends of pages, where the
// processor's own prefetch stops.
void stream(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kAhead = 4096;
  for (size_t at = 0; at < bytes; at += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from + at + kAhead), _MM_HINT_T0);
    const auto* const source = reinterpret_cast<const __m128i*>(from + at);
    auto* const target = reinterpret_cast<__m128i*>(to + at);
    const __m128i first = _mm_loadu_si128(source), second = _mm_loadu_si128(source + 1);
    const __m128i third = _mm_loadu_si128(source + 2), fourth = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, first);
    _mm_stream_si128(target + 1, second);
    _mm_stream_si128(target + 2, third);
    _mm_stream_si128(target + 3, fourth);
  }
}

}  // namespace
#endif

void save_past_cache(std::byte* to, const std::byte* from, size_t bytes) {
#if PCCL_X86
  // Whole lines only: a line that is written in part would have to be read after all.
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  if (bytes >= head + kLine) {
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    const size_t lines = bytes / kLine * kLine;
    stream(to, from, lines);
    to += lines;
    from += lines;
    bytes -= lines;
    _mm_sfence();
  }
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace pccl::memory
