// PathInfo: what the system knows of a TCP connection's way.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"

namespace pccl {

// All zero if it knows nothing, or nothing yet.
struct PathInfo {
  Duration smoothed{0}, least{0};  // round trips: of late, and the least of all
  // Segments with data that were sent since it opened, and how many of them again. They wrap
  // around.
  uint32_t segments = 0, segments_again = 0;
  uint64_t window = 0;  // bytes that congestion control lets be under way
};

}  // namespace pccl
