// trial: the content of the frames between the two ends of `pccl probe` (PROTOCOL.md, section 9):
// the trial that the client asks for, the server's result, and the server's reasons to end a
// session. Plain values, and pure functions that convert them to frames and back.
// Failure: a frame that breaks a rule has no value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/protocol/frames.h"

namespace pccl::probe {

enum class Direction : uint8_t { kThere, kBack, kBoth };  // kThere: from the client to the server

// The word for a direction, such as "there", and back. nullopt: the word names no direction.
const char* name_of(Direction direction);
std::optional<Direction> direction_named(const std::string& name);

// One measurement. Limits: kTrialStreamsMax and its neighbours in limits.h.
struct Trial {
  uint32_t streams = 1;  // connections that carry data
  uint32_t milliseconds = 1000;
  Direction direction = Direction::kBoth;
  bool wan = false;             // the connections are tuned for a wan path
  std::string congestion = {};  // name of the congestion control; empty: chosen by the path
  Duration length() const { return std::chrono::milliseconds(milliseconds); }
  // The first part of the trial is not counted, because the connections come up to their rate: it
  // is one second, or half of a trial that is shorter than two seconds.
  Duration warm_up() const;
  bool operator==(const Trial&) const = default;
};

bool is_valid(const Trial& trial);  // within all limits
// REQUIRES: is_valid(trial).
protocol::FrameHeader frame_of(const Trial& trial);
std::optional<Trial> trial_in(const protocol::FrameHeader& header);

struct TrialResult {
  uint64_t bytes = 0;  // number of bytes that arrived in the counted time
  uint32_t lost = 0;   // number of connections that failed
  uint32_t busy = 0;   // CPU time of the thread that moves the data, in thousandths of a core
  bool operator==(const TrialResult&) const = default;
};

enum class Refusal : uint16_t {
  kNone = 0,
  kBusy = 1,
  kToken = 2,
  kVersion = 3,
  kTrial = 4,
  kCongestion = 5,
  kStreams = 6,
  kOutOfPlace = 7,
  kSilence = 8,
  kTooLong = 9,
};

protocol::FrameHeader frame_of(const TrialResult& result);
protocol::FrameHeader frame_of(Refusal refusal);
// Both functions read a kTrialResult. An unknown reason becomes kOutOfPlace.
Refusal refusal_in(const protocol::FrameHeader& header);
TrialResult result_in(const protocol::FrameHeader& header);

// A phrase that follows the name of the client: "asked for a trial out of bounds".
const char* text(Refusal refusal);

}  // namespace pccl::probe
