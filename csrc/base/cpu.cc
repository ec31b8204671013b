#include "csrc/base/cpu.h"

#include <atomic>

#if PCCL_X86
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace pccl {
namespace {

bool detect() {
#if PCCL_X86
  __builtin_cpu_init();
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  // Not every compiler knows F16C by name, so its CPU flag is read here. F16C needs the same
  // support by the operating system as AVX2, which __builtin_cpu_supports("avx2") checks.
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_F16C) == 0) return false;
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

bool detect_widest() {
#if PCCL_X86
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
#else
  return false;
#endif
}

bool detect_aes() {
#if PCCL_X86
  __builtin_cpu_init();
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#elif defined(__aarch64__)
  constexpr unsigned long kNeeded = HWCAP_AES | HWCAP_PMULL;
  return (getauxval(AT_HWCAP) & kNeeded) == kNeeded;
#else
  return false;
#endif
}

std::atomic<bool> g_wide_allowed{true};
std::atomic<bool> g_widest_allowed{true};
std::atomic<bool> g_aes_allowed{true};

}  // namespace

bool has_wide_vectors() {
  static const bool present = detect();
  return present && g_wide_allowed.load(std::memory_order_relaxed);
}

void allow_wide_vectors(bool allowed) { g_wide_allowed.store(allowed, std::memory_order_relaxed); }

bool has_widest_vectors() {
  static const bool present = detect_widest();
  return present && has_wide_vectors() && g_widest_allowed.load(std::memory_order_relaxed);
}

void allow_widest_vectors(bool allowed) {
  g_widest_allowed.store(allowed, std::memory_order_relaxed);
}

bool has_aes() {
  static const bool present = detect_aes();
  return present && g_aes_allowed.load(std::memory_order_relaxed);
}

void allow_aes(bool allowed) { g_aes_allowed.store(allowed, std::memory_order_relaxed); }

}  // namespace pccl
