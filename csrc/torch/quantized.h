// quantized: WireFormat as Python gives it, and the codes of one tensor. Any thread may call these,
// with the GIL. Failure: ValueError for a format or a tensor that is not fit.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "csrc/base/wire_format.h"

namespace pccl::torch_layer {

// Bits of an element on the wire, elements of a block, bits of an element of the result, and 1 for
// stochastic rounding (otherwise 0). All are 0 if nothing is quantized.
using FormatNumbers = std::tuple<int64_t, int64_t, int64_t, int64_t>;

WireFormat format_of(const FormatNumbers& numbers);
FormatNumbers numbers_of(const WireFormat& format);

// Returns a contiguous tensor with the values that all members decode if `tensor` is contributed to
// an all-reduce. The elements of `tensor` have the order of its memory. `seed`: in place of the key
// of the all-reduce. REQUIRES: on the CPU, contiguous.
at::Tensor quantize_dequantize(const at::Tensor& tensor, const FormatNumbers& quantize,
                               uint64_t seed);

}  // namespace pccl::torch_layer
