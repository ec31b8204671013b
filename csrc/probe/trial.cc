#include "csrc/probe/trial.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::probe {
namespace {

using protocol::FrameHeader;
using protocol::FrameType;

constexpr Duration kWarmUpMax = std::chrono::seconds(1);
constexpr uint16_t kWanBit = 4;       // above the bits of the direction
constexpr size_t kNameBytesMax = 15;  // the system's own limit
constexpr std::array<const char*, 3> kDirections = {"there", "back", "both"};

bool is_congestion(const std::string& name) {
  return name.size() <= kNameBytesMax && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
         });
}

}  // namespace

const char* name_of(Direction direction) { return kDirections.at(static_cast<size_t>(direction)); }

std::optional<Direction> direction_named(const std::string& name) {
  const auto at = std::find(kDirections.begin(), kDirections.end(), name);
  if (at == kDirections.end()) return std::nullopt;
  return static_cast<Direction>(at - kDirections.begin());
}

Duration Trial::warm_up() const { return std::min(kWarmUpMax, length() / 2); }

bool is_valid(const Trial& trial) {
  return trial.streams >= 1 && trial.streams <= protocol::kTrialStreamsMax &&
         trial.length() >= protocol::kTrialTimeMin && trial.length() <= protocol::kTrialTimeMax &&
         static_cast<size_t>(trial.direction) < kDirections.size() &&
         is_congestion(trial.congestion);
}

FrameHeader frame_of(const Trial& trial) {
  PCCL_ASSERT(is_valid(trial));
  FrameHeader header;
  header.type = FrameType::kTrial;
  header.block = trial.streams;
  header.slice = trial.milliseconds;
  header.round = static_cast<uint16_t>(trial.direction) | (trial.wan ? kWanBit : 0);
  std::array<char, 16> name{};
  std::copy(trial.congestion.begin(), trial.congestion.end(), name.begin());
  std::memcpy(&header.op.tag.value, name.data(), 8);
  std::memcpy(&header.digest, name.data() + 8, 8);
  return header;
}

std::optional<Trial> trial_in(const FrameHeader& header) {
  std::array<char, 17> name{};
  std::memcpy(name.data(), &header.op.tag.value, 8);
  std::memcpy(name.data() + 8, &header.digest, 8);
  const Trial trial{.streams = header.block,
                    .milliseconds = header.slice,
                    .direction = static_cast<Direction>(header.round & (kWanBit - 1)),
                    .wan = (header.round & kWanBit) != 0,
                    .congestion = name.data()};
  const bool fine =
      header.type == FrameType::kTrial && header.round < 2 * kWanBit && is_valid(trial);
  return fine ? std::optional(trial) : std::nullopt;
}

FrameHeader frame_of(const TrialResult& result) {
  FrameHeader header;
  header.type = FrameType::kTrialResult;
  header.value = result.bytes;
  header.block = result.lost;
  header.slice = result.busy;
  return header;
}

FrameHeader frame_of(Refusal refusal) {
  PCCL_ASSERT(refusal != Refusal::kNone);
  FrameHeader header;
  header.type = FrameType::kTrialResult;
  header.round = static_cast<uint16_t>(refusal);
  return header;
}

Refusal refusal_in(const FrameHeader& header) {
  PCCL_ASSERT(header.type == FrameType::kTrialResult);
  const bool known = header.round <= static_cast<uint16_t>(Refusal::kTooLong);
  return known ? static_cast<Refusal>(header.round) : Refusal::kOutOfPlace;
}

TrialResult result_in(const FrameHeader& header) {
  PCCL_ASSERT(header.type == FrameType::kTrialResult);
  return {header.value, header.block, header.slice};
}

const char* text(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone: return "is welcome";
    case Refusal::kBusy: return "came while another client measured";
    case Refusal::kToken: return "has shown no token";
    case Refusal::kVersion: return "speaks another version of the protocol";
    case Refusal::kTrial: return "asked for a measurement out of bounds";
    case Refusal::kCongestion: return "asked for a congestion control that the system refuses";
    case Refusal::kStreams: return "opened too few connections in time";
    case Refusal::kOutOfPlace: return "spoke out of turn";
    case Refusal::kSilence: return "said nothing for too long";
    case Refusal::kTooLong: return "was here for an hour, which is enough";
  }
  return "broke a rule";
}

}  // namespace pccl::probe
