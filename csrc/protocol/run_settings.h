// run_settings: the settings that are the same for all peers of a run. The first peer of a run
// decides them: RunSettings has the values that it gives, and defaults for the settings that it
// leaves out. A later peer takes the settings that it leaves out from the run. It is refused if it
// gives another value than the run has. Welcome has the settings of the run, and the journal keeps
// them. fields.h has their order on the wire. Plain values and pure functions: any thread may use
// them.
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
  // `peer_timeout`: a peer that is silent for this time is lost. `first_call_timeout`: how long
  // members wait for a newcomer. The default of both is kPeerTimeoutDefault (limits.h).
  Duration peer_timeout = std::chrono::seconds(10);
  Duration first_call_timeout = std::chrono::seconds(10);
  // How long members wait for the call of a late member before they continue without it. 0: until
  // their own calls end.
  Duration call_timeout{0};
  bool operator==(const RunSettings&) const = default;
};

// The settings that one peer gives. A setting without a value is one that the peer leaves out.
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
// Returns all settings of the run as given settings.
GivenSettings give_all(const RunSettings& run);

// kInvalidArgument if a time is out of bounds. The text names the setting and its bounds.
Status check(const RunSettings& run);
// The same for the times that are given. The text also names the remedy.
Status check(const GivenSettings& given);
// kInvalidArgument if a given setting differs from the setting of the run. The text names these
// settings with both values, and the remedy.
Status compare(const GivenSettings& given, const RunSettings& run);

}  // namespace pccl::protocol
