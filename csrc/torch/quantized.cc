#include "csrc/torch/quantized.h"

#include <ATen/ops/empty_like.h>

#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/reducible.h"
#include "csrc/memory/quantize.h"
#include "csrc/torch/borrowed_tensors.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {

// Numbers that do not fit into the fields of a WireFormat change on the way there and back: they
// are refused.
WireFormat format_of(const FormatNumbers& numbers) {
  const auto [bits, block, result_bits, stochastic] = numbers;
  const WireFormat format{static_cast<uint8_t>(bits), static_cast<uint16_t>(block),
                          static_cast<uint8_t>(result_bits), stochastic == 1};
  Status status = check_quantizable(format, DType::kFloat32, ReduceOp::kSum);
  if (numbers_of(format) != numbers)
    status = {Code::kInvalidArgument, "these are no numbers of a format", {}};
  if (!status.ok()) raise(status);
  return format;
}

FormatNumbers numbers_of(const WireFormat& format) {
  return {format.bits, format.block, format.result_bits, format.stochastic ? 1 : 0};
}

at::Tensor quantize_dequantize(const at::Tensor& tensor, const FormatNumbers& quantize,
                               uint64_t seed) {
  const WireFormat format = format_of(quantize);
  const DType dtype = dtype_of(tensor.scalar_type());
  const Status status = check_quantizable(format, dtype, ReduceOp::kSum);
  if (!status.ok()) raise(status);
  PCCL_ASSERT(tensor.is_cpu() && tensor.is_contiguous() && format.quantizes());
  const auto elements = static_cast<size_t>(tensor.numel());
  const memory::Quantization how = *memory::encoding_of_contributions(format);
  at::Tensor decoded = at::empty_like(tensor);
  std::vector<std::byte> codes(memory::quantized_bytes(how, elements));
  memory::quantize(how, dtype, static_cast<const std::byte*>(tensor.const_data_ptr()),
                   memory::whole(elements), codes.data(), {format.stochastic, seed, 0});
  memory::dequantize(how, dtype, codes.data(), memory::whole(elements),
                     static_cast<std::byte*>(decoded.mutable_data_ptr()));
  return decoded;
}

}  // namespace pccl::torch_layer
