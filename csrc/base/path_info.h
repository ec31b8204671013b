// PathInfo: what the system knows of a TCP connection's way.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"

namespace pccl {

// All zero if it knows nothing, or nothing yet.
struct PathInfo {
  Duration smoothed{0}, least{0};  // round trips: of late, and the least of all
  // Segments with data since it opened: sent, sent again, arrived at the other end for all that we
  // have heard. They wrap around.
  uint32_t segments = 0, segments_again = 0, segments_arrived = 0;
  uint32_t segment_bytes = 0;  // of a full one
  uint64_t window = 0;         // bytes that congestion control lets be under way
  // Since it opened, while anything waited to arrive; of that, while its send buffer was full and
  // all in it under way: it is the buffer that holds it up.
  Duration busy{0}, held{0};
};

}  // namespace pccl
