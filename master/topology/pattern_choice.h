// pattern_choice: which all-reduces are predicted to be faster in the direct pattern than around
// the ring (pattern_time.h). Each of the two times is the time of the hops plus a time in
// proportion to the bytes. So the direct pattern is faster in one range of sizes, or never. Small
// all-reduces use neither pattern (epochs/one_shot_limit.h). Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/protocol/messages.h"
#include "master/topology/pattern_time.h"

namespace pccl::master::topology {

// The direct pattern is chosen only if it is predicted to be faster by this factor. The prediction
// ignores lost packets: if all members send to each other at once, packets are lost in shared
// queues, and more are lost with more members. A hop of a ring loses none this way. Besides, the
// slowest of many measured hops seems slower than it is. With 18 equal hosts, the direct pattern
// takes 1.5 to 2.5 times as long as the ring. With 4 hosts it is up to 1.5 times faster than the
// ring.
inline double direct_excess(size_t members) { return 1 + static_cast<double>(members - 1) / 10; }

// The sizes at which the direct pattern is faster; nothing if there are none. REQUIRES: as for
// ring_seconds() and direct_seconds().
std::optional<protocol::DirectSizes> direct_sizes(const Network& network, const Tour& ring,
                                                  const std::vector<uint16_t>& shares);

}  // namespace pccl::master::topology
