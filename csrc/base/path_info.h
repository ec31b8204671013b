// PathInfo: the system's measurements of the path of a TCP connection. A plain value.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"

namespace pccl {

// All values are 0 if the system has measured nothing.
struct PathInfo {
  Duration smoothed{0}, least{0};  // smoothed RTT and minimum RTT
  // The numbers of segments with data since the connection opened. `segments`: sent.
  // `segments_again`: sent again. `segments_arrived`: acknowledged by the other end. The counters
  // wrap around.
  uint32_t segments = 0, segments_again = 0, segments_arrived = 0;
  uint32_t segment_bytes = 0;  // bytes of a full segment
  uint64_t window = 0;         // bytes that congestion control allows to be in flight
  // Both count time since the connection opened. `busy`: the time in which some sent byte was not
  // acknowledged. `held`: the part of `busy` in which the send buffer was full and all its bytes
  // were in flight. Then the size of the buffer limited the rate.
  Duration busy{0}, held{0};
};

}  // namespace pccl
