// reducible: which reduce operations (SUM, MAX and so on) exist for which element types, and which
// of them can be quantized. Pure functions.
#pragma once

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/base/wire_format.h"

namespace pccl {

// Returns kOk if `op` can reduce elements of `dtype`. Integers allow all operations, bool allows
// all but AVG, floats allow all but the bitwise ones, and kBytes allows none. Otherwise returns
// kInvalidArgument with a message that names `op`, `dtype` and the alternatives.
Status check_reducible(DType dtype, ReduceOp op);

// Returns kOk if elements can travel in `format`. A format that does not quantize fits every
// reduction. Any other format must be one that WireFormat allows, `op` must be a sum or an average,
// and `dtype` must be float32, float16 or bfloat16. Otherwise returns kInvalidArgument with a
// message that names the allowed values.
Status check_quantizable(const WireFormat& format, DType dtype, ReduceOp op);

}  // namespace pccl
