// DType and ReduceOp: what the elements of a tensor are and how they are combined, without torch.
// Plain values that travel on the wire as their number: never renumber one, add at the end.
//
// bool is one byte per element, true if it is not zero. Reductions of it give 0 or 1 and cannot
// overflow: SUM, MAX and BOR mean "any"; PRODUCT, MIN and BAND mean "all"; BXOR "an odd number of".
//
// kBytes stands for every type that is only ever moved (float8, complex, ...): elements of one
// byte, no reduction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/base/status.h"

namespace pccl {

enum class DType : uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kUint16 = 5,
  kUint32 = 6,
  kUint64 = 7,
  kFloat16 = 8,
  kBfloat16 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
  kBool = 12,
  kBytes = 13,
};
inline constexpr uint8_t kDTypeCount = 14;  // a number from the network is valid if it is below

enum class ReduceOp : uint8_t {
  kSum = 0,
  kAvg = 1,
  kProduct = 2,
  kMin = 3,
  kMax = 4,
  kBand = 5,
  kBor = 6,
  kBxor = 7,
};
inline constexpr uint8_t kReduceOpCount = 8;  // likewise

// REQUIRES: a DType of the list above, as everywhere below.
size_t element_bytes(DType dtype);
bool is_floating(DType dtype);

// torch's name of it, "float32"; "bytes" for kBytes.
const char* text(DType dtype);
// torch's name of it, "SUM", as in ReduceOp.SUM.
const char* text(ReduceOp op);

// Whether elements of `dtype` can be combined with `op`: integers with all but AVG, floats with all
// but the bitwise operations, bool with all but AVG, kBytes with none. Else kInvalidArgument with
// both named, and what is allowed.
Status check_reducible(DType dtype, ReduceOp op);

}  // namespace pccl
