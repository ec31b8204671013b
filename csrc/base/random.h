// random: numbers that nobody can guess, from the system. Only shells call it.
#pragma once

#include <sys/random.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "csrc/base/assert.h"

namespace pccl {

// REQUIRES: at most 256 bytes, which always come at once.
inline void fill_random(std::span<std::byte> bytes) {
  const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
  PCCL_ASSERT(got == static_cast<ssize_t>(bytes.size()));
}

inline uint64_t random_number() {
  uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

}  // namespace pccl
