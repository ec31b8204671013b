// joint: when joint calls are settled. sync_shared_state is its group's own business;
// update_topology and are_peers_pending are one ballot for all groups of the run, so that no
// process of a machine waits for another that waits for it (PROTOCOL.md, section 5). Pure functions
// of the groups' ballots.
#pragma once

#include <string>

#include "master/groups.h"

namespace pccl::master {

// Answers what is complete; agrees on changes. To be called after everything that may complete a
// ballot. Looks at all groups only if a ballot of all is settled.
void settle_joint_calls(Groups& groups);

// The joint call of all groups in which members of groups wait that have taken part in something
// before, "update_topology, for which peer group 0 waits"; empty if there is none. Of interest to
// groups that have not: none of them is among those.
std::string awaited_by_others(const Groups& groups);

// A peer does not want to wait any longer for its call `number`. The call ends for all who wait in
// the same ballot, unless its answer is on its way. Void if that call is not open.
void give_up_joint_call(Groups& groups, Group& group, PeerId peer, uint32_t number);

}  // namespace pccl::master
