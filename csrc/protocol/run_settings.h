// run_settings: the settings that are the same for all peers of a run. The first peer of a run
// decides them: RunSettings are its own, and the defaults in place of those that it leaves out. A
// later peer takes the settings that it leaves out from the run, and is refused if it gives another
// value. Welcome tells each peer the settings of its run, and the journal keeps them. fields.h has
// their order on the wire. Plain values and pure functions: any thread may use them.
#pragma once

#include <cstdint>
#include <optional>

#include "csrc/base/clock.h"

namespace pccl {
struct Status;
}

namespace pccl::protocol {

// How a group handles operations in flight when it loses a member. kRaise: they fail until the
// application calls update_topology. kRetry: they begin again among the survivors.
enum class LossPolicy : uint8_t { kRaise = 0, kRetry = 1 };
// The pattern of large all-reduces. kAny: the master chooses by the known RTTs and rates.
enum class PatternChoice : uint8_t { kAny = 0, kRing = 1, kDirect = 2 };

const char* text(LossPolicy policy);     // "raise"
const char* text(PatternChoice choice);  // "ring"; kAny: "not set"

// On the wire, times are in whole milliseconds.
struct RunSettings {
  LossPolicy on_peer_loss = LossPolicy::kRaise;
  PatternChoice pattern = PatternChoice::kAny;
  // Silence of a peer that counts as a loss, and how long members wait for a newcomer. Both are
  // kPeerTimeoutDefault (limits.h).
  Duration peer_timeout = std::chrono::seconds(10);
  Duration first_call_timeout = std::chrono::seconds(10);
  // How long the others wait for a call of any other member before they continue without it; 0: as
  // long as their calls last.
  Duration call_timeout{0};
  bool operator==(const RunSettings&) const = default;
};

// The settings that one peer gives, and leaves out where there is no value.
struct GivenSettings {
  std::optional<LossPolicy> on_peer_loss = {};
  std::optional<PatternChoice> pattern = {};
  std::optional<Duration> peer_timeout = {};
  std::optional<Duration> first_call_timeout = {};
  std::optional<Duration> call_timeout = {};
  bool operator==(const GivenSettings&) const = default;
};

// The settings of a run whose first peer gives these. The default of first_call_timeout is the
// peer_timeout.
RunSettings settings_of_first(const GivenSettings& given);
// Each setting of the run, given.
GivenSettings give_all(const RunSettings& run);

// kInvalidArgument if a time is out of bounds. The text names it and its bounds.
Status check(const RunSettings& run);
// The same for given times. The text also names the remedy.
Status check(const GivenSettings& given);
// kInvalidArgument if settings are given that differ from those of the run. The text names them
// with both values, and the remedy.
Status compare(const GivenSettings& given, const RunSettings& run);

}  // namespace pccl::protocol
