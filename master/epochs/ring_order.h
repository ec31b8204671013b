// ring_order: the order of the members in the ring of an epoch. A pure function of the links, of
// the members in rank order, and of the epoch before.
#pragma once

#include <vector>

#include "master/epochs/routes.h"

namespace pccl::master {

// - A plan for these members is obeyed.
// - Otherwise the order of the ring before stays. It leaves out the lost. Newcomers follow in rank
//   order; if the ring had another order, each comes where it makes the hops least longer.
topology::Tour ring_order(const Links& links, const std::vector<PeerId>& members,
                          const RoutesBefore& before = {});

}  // namespace pccl::master
