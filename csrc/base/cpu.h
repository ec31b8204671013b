// cpu: which vector instructions the kernels may use, and which cipher is fast. The CPU is examined
// when the program runs, so that one build works on every machine. The answers change the speed of
// a kernel, never a bit of its result. Any thread may call these functions.
#pragma once

#if defined(__x86_64__)
#define PCCL_X86 1
// Marks a function that may be called only if has_wide_vectors() is true.
#define PCCL_WIDE __attribute__((target("avx2,f16c")))
// Marks a function that may be called only if has_widest_vectors() is true.
#define PCCL_WIDEST __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define PCCL_X86 0
#endif

namespace pccl {

// True if the CPU has AVX2 and F16C (x86-64 since about 2013), unless allow_wide_vectors(false) was
// called.
bool has_wide_vectors();

// True if has_wide_vectors() is true and the CPU has AVX-512 (F, BW, DQ and VL: x86-64 servers
// since about 2017), unless allow_widest_vectors(false) was called.
bool has_widest_vectors();

// For tests: while `allowed` is false, this machine seems to have no AVX-512.
void allow_widest_vectors(bool allowed);

// For tests: while `allowed` is false, all kernels run their portable code on every machine.
void allow_wide_vectors(bool allowed);

// True if the CPU has instructions for AES-GCM, unless allow_aes(false) was called. Without these
// instructions, ChaCha20-Poly1305 is several times as fast as AES-GCM.
bool has_aes();

// For tests: while `allowed` is false, this machine seems to have no AES instructions.
void allow_aes(bool allowed);

}  // namespace pccl
