// routes: how large tensors pass between the members of an epoch, as it follows from the links
// between them. Pure functions of the links and of the members in rank order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/messages.h"
#include "master/links.h"
#include "master/topology/pattern_time.h"

namespace pccl::master {

// Whether each member is linked with each other one.
bool is_mesh(const Links& links, const std::vector<PeerId>& members);

// The longest RTT between neighbours in the ring, or between any two members, in microseconds.
uint32_t longest_rtt_in_ring(const Links& links, const std::vector<PeerId>& members);
uint32_t longest_rtt_in_mesh(const Links& links, const std::vector<PeerId>& members);

// The shares of the direct pattern. `wanted` if there is one per member with the right sum;
// otherwise equal ones.
std::vector<uint16_t> shares_of(const std::vector<uint16_t>& wanted, size_t members);

// The network between these members, as their links have shown it; nothing if the rate or the RTT
// of any pair is unknown. The rates of all links of a member at once are not measured. So a member
// is taken to send in all, and to receive in all, what its fastest link carries alone.
std::optional<topology::Network> network_of(const Links& links, const std::vector<PeerId>& members);

// The way in which large all-reduces travel.
struct PatternWish {
  protocol::PatternChoice pattern = protocol::PatternChoice::kAny;
  std::vector<uint16_t> shares = {};  // by rank, for as many members
};
// Sets the ring of `start`, its shares, the all-reduces that use them, and the RTT. Without a wish,
// all-reduces use the direct pattern if the paths of all pairs are known, and it is predicted to be
// faster.
void set_routes(protocol::EpochStart& start, const Links& links, const PatternWish& wish);

}  // namespace pccl::master
