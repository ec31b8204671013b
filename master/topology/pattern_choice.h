// pattern_choice: which all-reduces are predicted to be faster in the direct pattern than around
// the ring (pattern_time.h). Both times grow in proportion to the bytes, from the time of the hops.
// So these all-reduces are those of one range of sizes, or none. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/protocol/messages.h"
#include "master/topology/pattern_time.h"

namespace pccl::master::topology {

// The sizes for which the direct pattern is faster; nothing if there are none. REQUIRES: as for
// ring_seconds() and direct_seconds().
std::optional<protocol::DirectSizes> direct_sizes(const Network& network, const Tour& ring,
                                                  const std::vector<uint16_t>& shares);

}  // namespace pccl::master::topology
