// assert: PCCL_ASSERT prints a condition that does not hold and ends the process. It is for bugs in
// pccl only, never for input from a network or a caller. It is always on, also in cores and codecs.
// PCCL_DCHECK is for hot loops: it is on unless NDEBUG is defined. Any thread may use them.
#pragma once

namespace pccl {

// Called after the condition is printed and before the process ends: it prints how to repeat the
// failure. Null: nothing more is known. A simulator sets it. A shipped process does not.
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
