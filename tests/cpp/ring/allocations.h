// Counts what this program asks the heap for: operator new is replaced (allocations.cc).
#pragma once

#include <cstdint>

namespace pccl {

// By all threads, since the program began.
uint64_t allocations();

}  // namespace pccl
