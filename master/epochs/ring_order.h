// ring_order: the order of the members in the ring of an epoch. A pure function of the links, of
// the members in rank order, and of the previous epoch.
#pragma once

#include <vector>

#include "master/epochs/routes.h"

namespace pccl::master {

// - If `before` has a plan for these members, the plan decides.
// - Otherwise a ring in rank order stays in rank order. A ring in another order keeps it, without
//   the lost members; each newcomer is inserted where the sum of the hops grows least.
topology::Tour ring_order(const Links& links, const std::vector<PeerId>& members,
                          const RoutesBefore& before = {});

}  // namespace pccl::master
