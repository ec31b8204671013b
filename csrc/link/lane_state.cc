#include "csrc/link/lane_state.h"

#include "csrc/base/transitions.h"

namespace pccl::link {

using Phase = LaneState::Phase;

namespace {

const Transitions<Phase, 5> kTransitions(
    "a lane", text,
    {{Phase::kConnecting, Phase::kHandshaking, "Connected; Accepted", "SendHello if dialled"},
     {Phase::kConnecting, Phase::kGone,
      "Refused; Forget, or a Dial that voids it; another connection of the peer is up; its link is "
      "down",
      "ReportLink unreachable after the last address, and a retry; Close"},
     {Phase::kHandshaking, Phase::kUp,
      "HelloReceived, a valid one; for a crossing connection: our own attempts have failed",
      "SendHello if accepted and not answered yet, LaneUp, ReportLink up if it is the first"},
     {Phase::kHandshaking, Phase::kGone,
      "HelloReceived, an invalid one; none in time; Failed; Forget, or a Dial that voids it; "
      "another connection of the peer is up; its link is down",
      "Close unless failed, ReportLink unreachable after the last address, and a retry"},
     {Phase::kUp, Phase::kGone,
      "Failed; silence; Suspected; Forget, or a Dial that voids it; no answer, and the peer dials "
      "again; too many peers are not named",
      "LinkDown, Close for all lanes, ReportLink down"}});

}  // namespace

const char* text(Phase phase) {
  switch (phase) {
    case Phase::kConnecting: return "connecting";
    case Phase::kHandshaking: return "handshaking";
    case Phase::kUp: return "up";
    case Phase::kGone: return "gone";
  }
  return "unknown";
}

void LaneState::enter(Phase next) { phase = kTransitions.step(phase, next); }

}  // namespace pccl::link
