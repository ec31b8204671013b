// reducible: which operations can reduce which element types. Pure functions.
#pragma once

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"

namespace pccl {

// Whether `op` can reduce elements of `dtype`. Integers and bool allow all operations except AVG,
// floats allow all except the bitwise ones, kBytes allows none. Otherwise kInvalidArgument; the
// message names both and what is allowed.
Status check_reducible(DType dtype, ReduceOp op);

}  // namespace pccl
