// WireFormat: how the elements of an all-reduce travel: as they are in memory, or quantized
// (csrc/memory/quantize.h). All members use the same format. A plain value; its numbers are sent
// over the network. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace pccl {

struct WireFormat {
  static constexpr uint16_t kBlockMin = 32, kBlockMax = 1024, kResultBlock = 256;

  uint8_t bits = 0;    // bits of an element of a contribution: 8, 4, or 16 (bfloat16); 0: as it is
  uint16_t block = 0;  // elements that share a scale, a power of two; 0 unless bits are 8 or 4
  uint8_t result_bits = 0;  // bits of an element of the result: 8 or 16 (bfloat16); 0: as it is
  // Codes are rounded at random (csrc/memory/quantize.h), not to nearest. False if bits are 16.
  bool stochastic = false;

  bool quantizes() const { return bits != 0; }
  // The number of elements that share a scale in a result of 8 bits.
  uint16_t result_block() const { return bits == 8 ? block : kResultBlock; }
  bool operator==(const WireFormat&) const = default;
};

// The name in Python: "MinMax(bits=8, block=256, result_bits=8)", "BFloat16()"; "None" for elements
// as they are. The rounding is named if it is not to nearest.
std::string text(const WireFormat& format);

// The kind of numbers that are rounded. kWhole: a contribution or a result. kPartialSum: a partial
// sum in a ring.
enum class Rounded : uint8_t { kWhole = 0, kPartialSum = 1 };

// Returns the number of bits that an element of `width` bytes takes on the wire: the mean of
// contributions and results, with the headers of their blocks (3 bytes each).
double bits_on_wire(const WireFormat& format, uint64_t width);

}  // namespace pccl
