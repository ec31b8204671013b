#include "csrc/memory/encoding.h"

#include <algorithm>

#include "csrc/memory/quantize.h"

namespace pccl::memory {
namespace {

uint32_t block_of(const Encoding& encoding) {
  return encoding && encoding->bits != 16 ? encoding->block : 1;
}

}  // namespace

Encoding encoding_of_contributions(const WireFormat& format) {
  if (!format.quantizes()) return {};
  return Quantization{format.bits, format.bits == 16 ? format.result_block() : format.block};
}

Encoding encoding_of_result(const WireFormat& format) {
  if (!format.quantizes()) return {};
  return Quantization{format.result_bits, format.result_block()};
}

uint32_t grain_of(const WireFormat& format) {
  return std::max(block_of(encoding_of_contributions(format)),
                  block_of(encoding_of_result(format)));
}

uint32_t wire_bytes(const Encoding& encoding, uint32_t bytes, uint64_t width) {
  if (!encoding) return bytes;
  return static_cast<uint32_t>(quantized_bytes(*encoding, bytes / width));
}

}  // namespace pccl::memory
