// LaneState: one connection of LinkCore, or an attempt to make one, with the table of its phases.
// Plain data.
#pragma once

#include <optional>
#include <string>

#include "csrc/link/events.h"
#include "csrc/protocol/keepalive_timer.h"

namespace pccl::link {

struct LaneState {
  enum class Phase : uint8_t { kConnecting, kHandshaking, kUp, kGone };

  void enter(Phase next);  // REQUIRES: the table in lane_state.cc allows it
  // It has not sent a valid hello.
  bool is_silent() const { return phase == Phase::kHandshaking && (dialled || !peer); }

  Phase phase = Phase::kConnecting;
  bool dialled = false;
  PeerId peer;                  // none: an accepted connection whose hello is not valid yet
  uint32_t serial = 0;          // before its hello: the number that was proven; 0: unknown
  bool further = false;         // before its hello: the value that was proven
  bool answered_early = false;  // our hello left after its Proven
  bool same_machine = false;    // the other end is on this machine
  Duration rtt{0};
  Endpoint at;          // the address that was dialled
  std::string address;  // of the other end, for people
  Instant hello_by;
  protocol::KeepaliveTimer keepalive{protocol::kTicksPerLinkTimeout};
  uint64_t last_pong = 0;
  // A dialled lane: the credential that we show. An accepted lane: the one that the dialler has
  // proven.
  std::optional<protocol::LaneCredential> credential;
  std::optional<Progress> progress;  // latest Progress event of this lane
  int stuck_beats = 0;               // beats in a row without an arrived large packet
};

using pccl::text;  // for durations and peers; the function below would hide it
const char* text(LaneState::Phase phase);

}  // namespace pccl::link
