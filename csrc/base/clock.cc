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

std::string iso_text(std::chrono::milliseconds since_1970) {
  using namespace std::chrono;
  const sys_time<milliseconds> at{since_1970};
  const auto day = floor<days>(at);
  const year_month_day date{day};
  const hh_mm_ss<milliseconds> time{at - day};
  char out[64];
  std::snprintf(out, sizeof out, "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", int(date.year()),
                unsigned(date.month()), unsigned(date.day()),
                static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
                static_cast<int>(time.seconds().count()),
                static_cast<int>(time.subseconds().count()));
  return out;
}

}  // namespace pccl
