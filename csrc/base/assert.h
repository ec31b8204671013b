// PCCL_ASSERT ends the process with the failed condition: for our own bugs only, never for input
// that comes from a network or a caller. Always on in cores and codecs. PCCL_DCHECK is for hot
// loops: on unless NDEBUG is defined.
#pragma once

namespace pccl {

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace pccl

#define PCCL_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::pccl::assertion_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define PCCL_DCHECK(condition) static_cast<void>(0)
#else
#define PCCL_DCHECK(condition) PCCL_ASSERT(condition)
#endif
