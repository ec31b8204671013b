// budgets: whether all voters gave optimize_topology the same budgets (PROTOCOL.md, section 5.4). A
// pure function.
#pragma once

#include "master/group/ruling.h"

namespace pccl::master {

struct GroupView;

// Returns an empty ruling if all budgets are equal. If all members that are no newcomers gave equal
// budgets, the newcomers with different ones are removed; otherwise the call fails for all.
// REQUIRES: all have voted.
Ruling rule_on_budgets(const GroupView& view);

}  // namespace pccl::master
