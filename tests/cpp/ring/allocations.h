// Counts what this program asks the heap for: operator new is replaced (allocations.cc).
#pragma once

#include <cstdint>

namespace pccl {

// By all threads, since the program began. 0: nothing is counted, as under the thread sanitizer.
uint64_t allocations();

}  // namespace pccl
