#include "csrc/base/clock.h"

#include <cmath>
#include <cstdio>

namespace pccl {

std::string text(Duration duration) {
  char out[32];
  const double seconds = to_seconds(duration);
  if (seconds < 1) {
    std::snprintf(out, sizeof out, "%.4g ms", seconds * 1e3);
    return out;
  }
  const bool in_hours = seconds >= 36000, in_minutes = seconds >= 600;
  const double count = seconds / (in_hours ? 3600 : in_minutes ? 60 : 1);
  const double tenths = std::round(count * 10);
  const int decimals = std::fmod(tenths, 10) == 0 ? 0 : 1;
  const char* const unit = in_hours ? "h" : in_minutes ? "min" : "s";
  std::snprintf(out, sizeof out, "%.*f %s", decimals, tenths / 10, unit);
  return out;
}

}  // namespace pccl
