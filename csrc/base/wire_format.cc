#include "csrc/base/wire_format.h"

namespace pccl {

std::string text(const WireFormat& format) {
  if (!format.quantizes()) return "None";
  if (format.bits == 16) return "BFloat16()";
  return "MinMax(bits=" + std::to_string(format.bits) + ", block=" + std::to_string(format.block) +
         (format.stochastic ? ", rounding='stochastic'" : "") +
         ", result_bits=" + std::to_string(format.result_bits) + ")";
}

double bits_on_wire(const WireFormat& format, uint64_t width) {
  if (!format.quantizes()) return 8.0 * static_cast<double>(width);
  const auto with_block = [](uint8_t bits, uint16_t block) {
    return bits + (bits == 16 || block == 0 ? 0.0 : 24.0 / block);
  };
  return (with_block(format.bits, format.block) +
          with_block(format.result_bits, format.result_block())) /
         2;
}

}  // namespace pccl
