// assert: PCCL_ASSERT prints a condition that does not hold and ends the process. It is for bugs in
// pccl only, never for input from a network or a caller. It is always on, also in cores and codecs.
// PCCL_DCHECK is for hot loops: it is on unless NDEBUG is defined. Any thread may use both macros.
#pragma once

namespace pccl {

// assertion_failed() calls this function after it has printed the condition and before it ends the
// process. The function prints how to repeat the failure. A simulator sets it. In a shipped process
// it is null, and nothing more is printed.
inline void (*on_assertion_failed)() = nullptr;

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace pccl

#define PCCL_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::pccl::assertion_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define PCCL_DCHECK(condition) static_cast<void>(0)
#else
#define PCCL_DCHECK(condition) PCCL_ASSERT(condition)
#endif
