// PlainFloatMode: while an object of this class exists, the thread rounds to nearest even and uses
// subnormals. The thread may have had another mode before (torch.set_flush_denormal, or a library
// linked with -ffast-math). The destructor sets that mode again.
#pragma once

#include <cstdint>

#include "csrc/base/cpu.h"

#if PCCL_X86
#include <immintrin.h>
#endif

namespace pccl::memory {

class PlainFloatMode {
 public:
  PlainFloatMode() {
    if (saved_ != plain_) set(plain_);
  }
  ~PlainFloatMode() {
    if (saved_ != plain_) set(saved_);
  }
  PlainFloatMode(const PlainFloatMode&) = delete;
  PlainFloatMode& operator=(const PlainFloatMode&) = delete;

 private:
#if PCCL_X86
  using Word = unsigned;
  static Word get() { return _mm_getcsr(); }
  static void set(Word word) { _mm_setcsr(word); }
  // kPlain: all exceptions are masked. kFlags: the status bits that exceptions set.
  static constexpr Word kPlain = 0x1f80, kFlags = 0x3f;
#elif defined(__aarch64__)
  using Word = uint64_t;
  static Word get() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void set(Word word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
  static constexpr Word kPlain = 0, kFlags = 0;
#else
  using Word = int;
  static Word get() { return 0; }
  static void set(Word) {}
  static constexpr Word kPlain = 0, kFlags = 0;
#endif
  const Word saved_ = get();
  const Word plain_ = kPlain | (saved_ & kFlags);
};

}  // namespace pccl::memory
