// PathInfo: the system's measurements of the path of a TCP connection. A plain value.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"

namespace pccl {

// All zero if the system knows nothing, or nothing yet.
struct PathInfo {
  Duration smoothed{0}, least{0};  // smoothed RTT and minimum RTT
  // Segments with data since the connection opened: sent, retransmitted, and arrived according to
  // the acknowledgements. These counters wrap around.
  uint32_t segments = 0, segments_again = 0, segments_arrived = 0;
  uint32_t segment_bytes = 0;  // bytes of a full segment
  uint64_t window = 0;         // bytes that congestion control allows to be in flight
  // `busy`: the time since the connection opened with bytes on the way. `held`: the part of `busy`
  // with a full send buffer that was all in flight, so that the size of the buffer was the limit.
  Duration busy{0}, held{0};
};

}  // namespace pccl
