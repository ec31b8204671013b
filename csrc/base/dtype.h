// dtype: DType is the element type of a tensor, and ReduceOp is the operation of a reduction.
// Neither needs torch. Plain values. Their numbers are sent over the network: never change a
// number, and add new ones at the end.
//
// kBool is one byte per element, and true if the byte is not zero. Its reductions give 0 or 1 and
// cannot overflow. SUM, MAX and BOR mean "any is true"; PRODUCT, MIN and BAND mean "all are true";
// BXOR means "an odd number of them is true".
//
// kBytes stands for every type that can be moved but not reduced (float8, complex, ...). Its
// elements are single bytes.
#pragma once

#include <cstddef>
#include <cstdint>

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
inline constexpr uint8_t kDTypeCount = 14;  // a number from the network must be below this

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
inline constexpr uint8_t kReduceOpCount = 8;  // a number from the network must be below this

// REQUIRES, of all three functions: `dtype` is in the list above.
size_t element_bytes(DType dtype);
bool is_floating(DType dtype);
bool is_quantizable(DType dtype);  // float32, float16 and bfloat16 (WireFormat)

// The name in torch, such as "float32"; "bytes" for kBytes; "unknown" for a number that is not in
// the list.
const char* text(DType dtype);
// The name in torch, such as "SUM" for ReduceOp.SUM; "unknown" for a number that is not in the
// list.
const char* text(ReduceOp op);

}  // namespace pccl
