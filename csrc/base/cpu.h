// Which vector instructions the kernels may use, found out when the program runs, so that one build
// serves every machine. Changes how fast a kernel is, never a bit of what it computes. Call from
// any thread.
#pragma once

#if defined(__x86_64__)
#define PCCL_X86 1
// Marks a function that may only be called where has_wide_vectors().
#define PCCL_WIDE __attribute__((target("avx2,f16c")))
#else
#define PCCL_X86 0
#endif

namespace pccl {

// AVX2 and F16C (x86-64 since about 2013). False elsewhere, and while forbidden below.
bool has_wide_vectors();

// For tests: while `allowed` is false, everything runs its portable code, whatever the machine has.
void allow_wide_vectors(bool allowed);

}  // namespace pccl
