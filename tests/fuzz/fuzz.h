// fuzz: shared parts of the fuzz targets in this folder. Each target is one function of bytes that
// the fuzzer invents. A finding is a crash: an assertion, a sanitizer report, or require() below.
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

// Ends the process if `holds` is false. The condition has to hold for all inputs.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace pccl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
