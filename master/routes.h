// routes: what the links between the members of an epoch mean for the way that its tensors take.
// Pure functions of the links and of the members in rank order, which is also the ring order.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/base/ids.h"
#include "master/links.h"

namespace pccl::master {

// Whether each member is linked with each other one.
bool is_mesh(const Links& links, const std::vector<PeerId>& members);

// The longest RTT between neighbours in the ring, or between any two members, in microseconds.
uint32_t longest_rtt_in_ring(const Links& links, const std::vector<PeerId>& members);
uint32_t longest_rtt_in_mesh(const Links& links, const std::vector<PeerId>& members);

// The shares of the direct pattern. `wanted` if there is one per member with the right sum;
// otherwise equal ones.
std::vector<uint16_t> shares_of(const std::vector<uint16_t>& wanted, size_t members);

}  // namespace pccl::master
