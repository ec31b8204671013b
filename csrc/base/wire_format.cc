#include "csrc/base/wire_format.h"

namespace pccl {

std::string text(const WireFormat& format) {
  if (!format.quantizes()) return "None";
  if (format.bits == 16) return "BFloat16()";
  return "MinMax(bits=" + std::to_string(format.bits) + ", block=" + std::to_string(format.block) +
         (format.stochastic ? ", rounding='stochastic'" : "") +
         ", result_bits=" + std::to_string(format.result_bits) + ")";
}

}  // namespace pccl
