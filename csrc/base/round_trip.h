// RoundTrip, Segments: what the system knows of a connection's way.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"

namespace pccl {

// As the system has measured it, smoothed, and the least of all; zero if it has not.
struct RoundTrip {
  Duration smoothed{0}, least{0};
};

// Sent with data since it opened, and how many of them again. They wrap around.
struct Segments {
  uint32_t sent = 0, again = 0;
};

}  // namespace pccl
