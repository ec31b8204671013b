// The arithmetic of a reduction, and the copy that keeps what a reduction will overwrite. Plain
// functions over memory of any alignment; they allocate nothing and may be called from any thread.
//
// Same bits, always. An element's result depends on the elements alone: not on where a span was
// cut, on its alignment, on the machine's instructions (csrc/base/cpu.h), nor on the caller's
// floating-point mode (flush to zero, rounding). Members that reduce the same data in the same
// order hold the same result, each on its own machine. Hence:
//   - Integers wrap around, signed ones too.
//   - Floats round to nearest even once per step, subnormals included; nothing is fused.
//   - 16-bit floats are widened to float32, combined, and rounded to their own type at each step.
//   - A NaN in either operand gives NaN, in MIN and MAX too: always the positive quiet one, with no
//     payload. Of -0 and +0, which are equal, MIN and MAX keep the first operand.
//   - A bool is true if its byte is not 0; results are 0 or 1 (csrc/base/dtype.h).
//
// REQUIRES, for all: check_reducible(dtype, op).ok(); pairs that cannot be reduced are refused
// where the call is made.
#pragma once

#include <cstddef>

#include "csrc/base/dtype.h"

namespace pccl::ring {

// destination = destination (op) source. AVG adds, until finish(). The spans do not overlap.
void reduce_into(DType dtype, ReduceOp op, std::byte* destination, const std::byte* source,
                 size_t elements);

// destination = a (op) b. `destination` may be exactly `a` or `b`; no other overlap.
void reduce_out(DType dtype, ReduceOp op, std::byte* destination, const std::byte* a,
                const std::byte* b, size_t elements);

// What is left when the contributions of all are in: AVG divides by `contributors`, once (float64
// in float64, all others in float32, then rounded to their type). Nothing for other operations.
void finish(DType dtype, ReduceOp op, std::byte* data, size_t elements, int contributors);

// Copies without bringing `to` into the cache, for bytes that nobody reads unless an operation
// fails: memcpy, which reads each line before it overwrites it, takes nearly twice as long when
// `from` is in the cache. The spans do not overlap. Whoever is told of the copy sees all of it.
void save_past_cache(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace pccl::ring
