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

namespace pccl::memory {

struct Quantization {
  static constexpr uint32_t kBlockMin = 32, kBlockMax = 1024;

  uint8_t bits = 8;      // 8 or 4; 16: bfloat16
  uint32_t block = 256;  // elements; a power of two from kBlockMin to kBlockMax
  bool operator==(const Quantization&) const = default;
};

// Whether elements of this type can be quantized: float32, float16 and bfloat16.
bool quantizable(DType dtype);

// Bytes on the wire of `elements` elements that begin with a block.
uint64_t quantized_bytes(const Quantization& how, uint64_t elements);

// Writes the codes of elements that begin with a block. REQUIRES: quantizable(dtype).
void quantize(const Quantization& how, DType dtype, const std::byte* from, size_t elements,
              std::byte* to);

// Writes what quantize() has encoded, rounded to `dtype`. REQUIRES: quantizable(dtype).
void dequantize(const Quantization& how, DType dtype, const std::byte* from, size_t elements,
                std::byte* to);

// sum += what quantize() has encoded.
void add_dequantized(const Quantization& how, const std::byte* from, size_t elements, float* sum);

}  // namespace pccl::memory
