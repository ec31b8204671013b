// Kernels: the arithmetic of a reduction, and the copy that saves the bytes that a reduction will
// overwrite. Plain functions over memory of any alignment. They allocate nothing and may be called
// from any thread.
//
// Invariant: the same bits, always. The result of an element depends only on the elements. It does
// not depend on where a span was cut, on alignment, on the instruction set of the machine
// (csrc/base/cpu.h), or on the floating-point mode of the caller (flush to zero, rounding). Members
// that reduce the same data in the same order therefore hold the same result, each on its own
// machine. In detail:
//   - Integers wrap around, signed ones too.
//   - Floats round to nearest even once per step, subnormals included; nothing is fused.
//   - 16-bit floats are widened to float32, combined, and rounded to their own type at each step.
//   - A NaN in either operand gives NaN, in MIN and MAX too: always the positive quiet NaN without
//     payload. -0 and +0 are equal, so MIN and MAX keep the first operand.
//   - A bool is true if its byte is not 0; results are 0 or 1 (csrc/base/dtype.h).
//
// REQUIRES, for all functions: check_reducible(dtype, op).ok(). A pair that cannot be reduced is
// refused where the collective is called.
#pragma once

#include <cstddef>

#include "csrc/base/dtype.h"

namespace pccl::memory {

// destination = destination (op) source. AVG only adds, until finish(). The spans do not overlap.
void reduce_into(DType dtype, ReduceOp op, std::byte* destination, const std::byte* source,
                 size_t elements);

// destination = a (op) b. `destination` may be exactly `a` or `b`; no other overlap.
void reduce_out(DType dtype, ReduceOp op, std::byte* destination, const std::byte* a,
                const std::byte* b, size_t elements);

// Last step of a reduction, after all contributions are in. AVG divides by `contributors`, once
// (float64 in float64, all others in float32, then rounded to their type). Other operations do
// nothing.
void finish(DType dtype, ReduceOp op, std::byte* data, size_t elements, int contributors);

// Copies without loading `to` into the cache, for bytes that are read only if an operation fails.
// memcpy reads each line before it overwrites it, and takes nearly twice as long if `from` is in
// cache. The spans do not overlap. A thread that is told about the copy afterwards sees all of it.
void save_past_cache(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace pccl::memory
