// quantize: encodes floats as 8 or 4 bits. Elements are cut into blocks of neighbours, counted from
// the start of the tensor, and each block has a scale and a zero point of its own:
//
//   lo = min(0, least element), hi = max(0, greatest element), L = 2^bits - 2
//   scale = hi * (1 / L) - lo * (1 / L), rounded up to a bfloat16;  zero = rint(-lo / scale)
//   code = rint(element / scale) + zero;  decoded = (code - zero) * scale
//
// An element that is 0 decodes to 0. No code is out of range: rint(a) + rint(b) <= a + b + 1, and
// (hi - lo) / scale exceeds L by less than 1 part in 2^20. With 16 bits an element is a bfloat16,
// and there are no blocks.
//
// Instead of rint(element / scale), which rounds to nearest, the rounding may be at random: to the
// integer below or above, with a mean that is element / scale. `zero` is then rounded up, and a
// code above the greatest code becomes the greatest code (at most 1 in 2^15, and only at the upper
// end of a block).
//
// On the wire, n elements are the scales of their blocks (2 bytes each, little-endian), the zero
// points (1 byte each), and the codes, block by block. The codes of a block of m elements are
// w = ceil(m * bits / 32) words of 32 bits, little-endian: element k * w + i is in word i, at bit
// k * bits. Bits without an element hold the code of 0.
//
// Invariant: the same bits, always, as in csrc/memory/kernels.h: codes depend only on the elements
// of a block. A product (code - zero) * scale has at most 16 significant bits, so it is exact.
// Special values: a block with an infinity or a NaN decodes to NaN as a whole. If the scale would
// be below the smallest normal float (2^-126), all elements decode to 0. -0 decodes to 0. A number
// less than 1 part in 128 below the largest float may decode to an infinity.
//
// Plain functions over memory of any alignment. They allocate nothing and may be called from any
// thread. The error of an element is at most (1 + 2^-14) * scale / 2, and scale is at most
// (hi - lo) / L * (1 + 2^-7). If all elements of a block decode to 0, the error is at most hi - lo.
// With rounding at random, the error is at most twice as large.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/base/dtype.h"
#include "csrc/memory/encoding.h"

namespace pccl::memory {

// Returns the number of bytes on the wire of `elements` elements that begin with a block.
uint64_t quantized_bytes(const Quantization& how, uint64_t elements);

// A part of a row of elements; a row is encoded as a whole. A stretch begins with a block. It ends
// with a block or with the row.
struct Stretch {
  size_t row = 0;    // elements of the row
  size_t first = 0;  // index of the first element of the stretch
  size_t count = 0;  // elements of the stretch
};
constexpr Stretch whole(size_t row) { return {row, 0, row}; }

// How numbers are rounded to codes: to nearest, or at random. Random bits depend on `key` and on
// the place of an element in its tensor (csrc/memory/threefry.h). If a whole block has W words,
// element k * w + i of block b has the counter c = b * W + i and the number p = k / 4. The counter
// words c mod 2^32 and 2 * (c / 2^32) + p give 64 random bits, and the element uses 16 of them: the
// 16 bits with number k % 4. A bfloat16 is always rounded to nearest.
struct Rounding {
  bool random = false;
  uint64_t key = 0;
  uint64_t first = 0;  // first element of the row in the tensor; begins a block
};

// Encodes a stretch. `from` points to its elements; `row` points to the whole encoded row. The
// codes are written to their place in the row. REQUIRES: is_quantizable(dtype).
void quantize(const Quantization& how, DType dtype, const std::byte* from, Stretch stretch,
              std::byte* row, const Rounding& rounding = {});

// Encodes a stretch into `row`, and writes the decoded values of the codes to `to`. `to` may be
// equal to `from`.
void quantize_both(const Quantization& how, const float* from, Stretch stretch, std::byte* row,
                   float* to, const Rounding& rounding = {});

// Compute the decoded values of the codes that a stretch would have, and write no codes.
// set_quantized() writes the values to `to`; add_quantized() adds them to `sum`. If `dtype` is
// float32, `to` may be equal to `from`. REQUIRES: is_quantizable(dtype).
void set_quantized(const Quantization& how, DType dtype, const std::byte* from, Stretch stretch,
                   float* to, const Rounding& rounding = {});
void add_quantized(const Quantization& how, DType dtype, const std::byte* from, Stretch stretch,
                   float* sum, const Rounding& rounding = {});

// Decodes a stretch of the encoded row `row`. Writes its elements to `to`, rounded to `dtype`.
// REQUIRES: is_quantizable(dtype).
void dequantize(const Quantization& how, DType dtype, const std::byte* row, Stretch stretch,
                std::byte* to);

// sum += the decoded elements of a stretch of the encoded row `row`.
void add_dequantized(const Quantization& how, const std::byte* row, Stretch stretch, float* sum);

// sum /= divisor.
void divide(float* sum, size_t elements, int divisor);

// Writes floats, rounded to `dtype`. REQUIRES: is_quantizable(dtype).
void round_to(DType dtype, const float* from, size_t elements, std::byte* to);

}  // namespace pccl::memory
