// RoundTrip: how long bytes of a connection are on their way there and back.
#pragma once

#include "csrc/base/clock.h"

namespace pccl {

// As the system has measured it, smoothed, and the least of all; zero if it has not.
struct RoundTrip {
  Duration smoothed{0}, least{0};
};

}  // namespace pccl
