// Kernels: the arithmetic of a reduction, and the copy that saves the bytes that a reduction will
// overwrite. Plain functions over memory of any alignment. They allocate nothing and may be called
// from any thread.
//
// Invariant: the same bits, always. The result of an element depends only on the elements. It does
// not depend on where a span was cut, on alignment, on the instruction set of the machine
// (csrc/base/cpu.h), or on the floating-point mode of the caller (flush to zero, rounding). Members
// that reduce the same data in the same order therefore hold the same result, each on its own
// machine. In detail:
//   - Integers wrap around, signed ones too. Their AVG is the sum, which wraps around, divided by
//     divisor_of(); the fraction is cut off (towards zero).
//   - Floats round to nearest even once per step, subnormals included; nothing is fused.
//   - 16-bit floats are widened to float32, combined, and rounded to their own type at each step.
//   - AVG of 16-bit floats multiplies each contribution by 2^-k as it reads it, where 2^k is the
//     least power of two that is not below the number of contributors. The average of finite
//     numbers is finite: rounding never turns a smaller sum into a larger one, and with kMembersMax
//     contributors or fewer even the largest number does not overflow (the tests try all). The
//     error is at most contributors x u x the mean of the magnitudes (u is 2^-11 for float16, 2^-8
//     for bfloat16), plus the smallest subnormal times the number of contributors. If only p of n
//     contributors count in the average, this last term is n / p times as large.
//   - A NaN in either operand gives NaN, in MIN and MAX too: always the positive quiet NaN without
//     payload. -0 and +0 are equal, so MIN and MAX keep the first operand.
//   - A bool is true if its byte is not 0; results are 0 or 1 (csrc/base/dtype.h).
//
// REQUIRES, for all functions: check_reducible(dtype, op).ok(). A pair that cannot be reduced is
// refused where the collective is called.
#pragma once

#include <algorithm>
#include <cstddef>

#include "csrc/base/dtype.h"

namespace pccl::memory {

// A reduction of one tensor from each of `contributors` members. `absent` members of these give
// zeros, and do not count in an average: an average divides by the number of the other members, but
// at least by 1. Only AVG depends on the two numbers.
struct Reduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int contributors = 1;
  int absent = 0;
};

// The divisor of an average.
inline int divisor_of(const Reduction& reduction) {
  return std::max(reduction.contributors - reduction.absent, 1);
}

// destination = partial (op) contribution: this step takes a reduction from `held` contributions to
// held + 1. If `held` is 1, `partial` is itself a contribution; otherwise it is the result of the
// step before. The step that adds the last contribution gives the result: there AVG divides, in the
// precision of the sum. So a reduction of one contributor has no step.
// `destination` may be exactly `partial` or `contribution`; no other overlap.
// REQUIRES, for AVG: 1 <= held < contributors.
void reduce(const Reduction& reduction, int held, std::byte* destination, const std::byte* partial,
            const std::byte* contribution, size_t elements);

// Copies without loading `to` into the cache, for bytes that are read only if an operation fails.
// memcpy reads each line before it overwrites it, and takes nearly twice as long if `from` is in
// cache. The spans do not overlap. A thread that learns about the copy afterwards sees all of it.
void save_past_cache(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace pccl::memory
