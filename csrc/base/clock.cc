#include "csrc/base/clock.h"

#include <cstdio>

namespace pccl {

std::string text(Duration duration) {
  char out[32];
  const double seconds = to_seconds(duration);
  if (seconds < 1) {
    std::snprintf(out, sizeof out, "%.4g ms", seconds * 1e3);
  } else {
    std::snprintf(out, sizeof out, "%.4g s", seconds);
  }
  return out;
}

}  // namespace pccl
