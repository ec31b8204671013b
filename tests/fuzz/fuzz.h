// fuzz: what the targets of this folder share. Each is one function of bytes that a fuzzer makes
// up; a finding is a crash: an assertion, a sanitizer's report, or EXPECT() below.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "tests/cpp/chance.h"

namespace pccl::fuzz {

inline std::span<const std::byte> as_bytes(const uint8_t* data, size_t size) {
  return std::as_bytes(std::span(data, size));
}

// Ends the process if `holds` is false. It has to be true for all bytes.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace pccl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
