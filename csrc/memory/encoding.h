// encoding: how the elements of a chunk are written on the wire. A chunk has one size in memory and
// another size on the wire. Code that moves bytes uses wire_bytes(); code that touches tensors uses
// the bytes in memory. Plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "csrc/base/wire_format.h"

namespace pccl::memory {

struct Quantization {
  static constexpr uint32_t kBlockMin = WireFormat::kBlockMin, kBlockMax = WireFormat::kBlockMax;

  uint8_t bits = 8;      // 8 or 4; 16: bfloat16
  uint32_t block = 256;  // elements; a power of two from kBlockMin to kBlockMax
  bool operator==(const Quantization&) const = default;
};

// How elements travel. An empty Encoding: as they are in memory, little-endian.
using Encoding = std::optional<Quantization>;

// The encodings of the contributions and of the result of an all-reduce. With contributions of 4
// bits, a result of 8 bits has blocks of 256 elements.
Encoding encoding_of_contributions(const WireFormat& format);
Encoding encoding_of_result(const WireFormat& format);

// The number of elements in every chunk of a tensor but the last is a multiple of this number. So a
// chunk has whole blocks of both encodings.
uint32_t grain_of(const WireFormat& format);

// Returns the number of bytes on the wire of some elements. They have `bytes` bytes in memory,
// `width` bytes each, and begin with a block of codes.
uint32_t wire_bytes(const Encoding& encoding, uint32_t bytes, uint64_t width);

}  // namespace pccl::memory
