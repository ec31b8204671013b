// reducible: which reduce operations (SUM, MAX and so on) exist for which element types, and which
// of them can be quantized. Pure functions.
#pragma once

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/base/wire_format.h"

namespace pccl {

// Whether `op` can reduce elements of `dtype`. Integers allow all operations, bool allows all but
// AVG, floats allow all but the bitwise ones, kBytes allows none. Otherwise kInvalidArgument; the
// message names both and the allowed ones.
Status check_reducible(DType dtype, ReduceOp op);

// Whether a reduction of this type can travel in this format: a sum or an average of float32,
// float16 or bfloat16, and a format that WireFormat allows. A reduction that is not quantized
// is always allowed. Otherwise kInvalidArgument; the message names the allowed ones.
Status check_quantizable(const WireFormat& format, DType dtype, ReduceOp op);

}  // namespace pccl
