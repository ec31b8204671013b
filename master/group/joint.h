// joint: decides when joint calls are settled. Each group settles sync_shared_state alone. For
// update_topology and are_peers_pending, all groups of the run vote in one ballot, so that no two
// processes of a machine wait for each other (PROTOCOL.md, section 5). Functions of the groups'
// ballots, without state of their own. The MasterCore calls them.
#pragma once

#include <string>

#include "csrc/base/ids.h"

namespace pccl::master {

class Group;
class Groups;

// Answers complete ballots and begins agreed changes. Must be called after everything that may
// complete a ballot. Visits all groups only if a ballot of all groups is settled.
void settle_joint_calls(Groups& groups);

// Returns a text about a joint call of all groups that the members of some group wait in, for
// example "update_topology, for which peer group 0 waits,". Empty if there is no such call. A group
// counts only if its members have taken part in something. The text is for the other groups.
std::string awaited_by_others(const Groups& groups);

// A peer gives up its call `number`. The call then ends for all voters in the same ballot, unless
// its answer is already on its way. Ignored if the call is not open.
void give_up_joint_call(Groups& groups, Group& group, PeerId peer, uint32_t number);

}  // namespace pccl::master
