// allocations: counts the heap allocations of this program; allocations.cc replaces operator new.
#pragma once

#include <cstdint>

namespace pccl {

// Allocations of all threads since the program began. 0: nothing is counted, as under the thread
// sanitizer.
uint64_t allocations();

}  // namespace pccl
