// threefry: Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
// as easy as 1, 2, 3", 2011), on vectors of counters. It makes two random words of 32 bits from a
// key and a counter of two words each. It has no state: the words of a counter are the same on
// every machine, in any order. It only adds, rotates and combines words, so that the compiler finds
// vector instructions for it everywhere. The functions are pure and may be called from any thread.
#pragma once

#include <cstdint>

#include "csrc/memory/kernels_vector.h"

namespace pccl::memory {

// The key, and its third word.
struct ThreefryKey {
  uint32_t words[3];
  explicit constexpr ThreefryKey(uint64_t key)
      : words{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32),
              static_cast<uint32_t>(key) ^ static_cast<uint32_t>(key >> 32) ^ 0x1bd11bdau} {}
};

// `a` and `b` are the counters, and become the random words.
template <typename Words>
PCCL_INLINE void threefry(const ThreefryKey& key, Words& a, Words& b) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  a += key.words[0];
  b += key.words[1];
#pragma GCC unroll 5
  for (uint32_t group = 0; group < 5; ++group) {
#pragma GCC unroll 4
    for (int round = 0; round < 4; ++round) {
      const int by = kRotations[group % 2][round];
      a += b;
      b = ((b << by) | (b >> (32 - by))) ^ a;
    }
    a += key.words[(group + 1) % 3];
    b += key.words[(group + 2) % 3] + group + 1;
  }
}

}  // namespace pccl::memory
