// hello_check: makes the hello of this peer, and finds out whether this peer refuses the hello of
// the other end. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "csrc/link/events.h"
#include "csrc/link/lane_state.h"

namespace pccl::link {

protocol::LaneHello hello_of(const Identity& self, PeerId other, uint32_t serial, bool further);
// The reason why this peer refuses a hello on this lane; empty: it accepts the hello.
// `last_serial`: the last serial number of the peer that the hello names (Serials::last).
std::string refusal(const Identity& self, const LaneState& lane,
                    const std::optional<protocol::LaneHello>& hello, uint32_t last_serial);

}  // namespace pccl::link
