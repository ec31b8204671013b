// clock: Instant and Duration, the only types for time in pccl, in monotonic nanoseconds. Plain
// values. Cores never read a clock: they get each Instant from their shell, or from the simulator,
// which uses a simulated time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace pccl {

using Duration = std::chrono::nanoseconds;

// Long enough to mean "for ever", and short enough that the sum with an Instant does not overflow.
constexpr Duration kForever = std::chrono::hours(24 * 3650);

struct Instant {
  Duration since_start{0};

  friend auto operator<=>(const Instant&, const Instant&) = default;
  friend Instant operator+(Instant at, Duration by) { return {at.since_start + by}; }
  friend Duration operator-(Instant to, Instant from) { return to.since_start - from.since_start; }
};

// Reads the steady clock of this machine. Only shells call it.
inline Instant monotonic_now() {
  return {
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())};
}

// Reads the clock of this machine: the time since 1970, which a person or a program may set. Only
// shells call it.
inline std::chrono::milliseconds unix_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
}

inline double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Returns the duration as a text for messages: "250 ms", "2.5 s", "12 min".
std::string text(Duration duration);

// Returns a time since 1970 as ISO 8601 in UTC: "2026-07-31T12:34:56.789Z". It depends on no lock
// and no time zone, as the functions of the C library do.
std::string iso_text(std::chrono::milliseconds since_1970);

}  // namespace pccl
