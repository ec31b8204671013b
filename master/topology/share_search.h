// share_search: the shares of the direct pattern for the fastest large all-reduce. A share of a
// member loads its uplink, its downlink and all its paths (pattern_time.h). A member that sends
// slowly gets a small share, or none. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "master/topology/pattern_time.h"

namespace pccl::master::topology {

// Returns the shares by member; their sum is protocol::kSharesTotal. REQUIRES: two members or more.
std::vector<uint16_t> fastest_shares(const Network& network);

}  // namespace pccl::master::topology
