// quantize: floats as 8 or 4 bits. Elements are cut into blocks of neighbours, counted from the
// start of the tensor, and each block has a step and a zero point of its own:
//
//   lo = min(0, least element), hi = max(0, greatest element), L = 2^bits - 2
//   step = hi * (1 / L) - lo * (1 / L), rounded up to a bfloat16;  zero = rint(-lo / step)
//   code = rint(element / step) + zero;  decoded = (code - zero) * step
//
// An element that is 0 decodes to 0. No code is out of range: rint(a) + rint(b) <= a + b + 1, and
// (hi - lo) / step exceeds L by less than 1 part in 2^20. With 16 bits an element is a bfloat16,
// and there are no blocks.
//
// On the wire, n elements are the steps of their blocks (2 bytes each, little-endian), the zero
// points (1 byte each), and the codes, block by block. The codes of a block of m elements are
// w = ceil(m * bits / 32) words of 32 bits, little-endian: element k * w + i is in word i, at bit
// k * bits. Bits without an element hold the code
// of 0.
//
// Invariant: the same bits, always, as in csrc/memory/kernels.h: codes depend only on the elements
// of a block. A product (code - zero) * step has at most 16 significant bits, so it is exact.
// Special values: a block with an infinity or a NaN decodes to NaN as a whole. If the step would be
// below the smallest normal float (2^-126), all elements decode to 0. -0 decodes to 0. A number
// less than 1 part in 128 below the largest float may decode to an infinity.
//
// Plain functions over memory of any alignment. They allocate nothing and may be called from any
// thread. The error of an element is at most (1 + 2^-14) * step / 2, and step is at most
// (hi - lo) / L * (1 + 2^-7), or (hi - lo) if there is no step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/base/dtype.h"
#include "csrc/memory/encoding.h"

namespace pccl::memory {

// Bytes on the wire of `elements` elements that begin with a block.
uint64_t quantized_bytes(const Quantization& how, uint64_t elements);

// A part of a row of elements that are encoded together. It begins and ends with a block, or ends
// with the row.
struct Stretch {
  size_t row = 0;    // elements of the row
  size_t first = 0;  // element of the row
  size_t count = 0;
};
constexpr Stretch whole(size_t row) { return {row, 0, row}; }

// Writes the codes of a stretch, whose elements are at `from`, to their place in the codes of the
// row, which begin at `row`. REQUIRES: is_quantizable(dtype).
void quantize(const Quantization& how, DType dtype, const std::byte* from, Stretch stretch,
              std::byte* row);

// Writes the elements of a stretch to `to`, rounded to `dtype`. REQUIRES: is_quantizable(dtype).
void dequantize(const Quantization& how, DType dtype, const std::byte* row, Stretch stretch,
                std::byte* to);

// sum += the elements of a stretch.
void add_dequantized(const Quantization& how, const std::byte* row, Stretch stretch, float* sum);

// sum /= divisor.
void divide(float* sum, size_t elements, int divisor);

// Writes floats, rounded to `dtype`. REQUIRES: is_quantizable(dtype).
void round_to(DType dtype, const float* from, size_t elements, std::byte* to);

}  // namespace pccl::memory
