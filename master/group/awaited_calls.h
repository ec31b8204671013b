// AwaitedCall: the facts about a call in which some members of a group wait for other members.
// wait_texts.h makes sentences of them. Pure values and functions of the const view of a run.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/ids.h"
#include "csrc/protocol/messages.h"

namespace pccl::master {

class Group;
class Groups;

// Members of a group that have not made a call. `ranks` is empty if all have made it, and the loss
// of another member is still to be made durable.
struct Absent {
  GroupId group;
  std::vector<uint32_t> ranks;
};

struct AwaitedCall {
  std::variant<OpKey, protocol::JointKind> call;
  Instant since;
  std::vector<PeerId> waiting;
  // Empty if no member is missing: other calls of the waiting members have to end first.
  std::vector<Absent> absent;
  bool is_facing = false;  // the call is a send, and its receiver waits in a send to the sender
};

// Returns the calls in which members of this group wait: operations first, then the open joint
// call.
std::vector<AwaitedCall> awaited_calls(const Groups& groups, const Group& group);

// Returns the members of all groups that have not made this joint call, by group.
std::vector<Absent> absent_from(const Groups& groups, protocol::JointKind kind);

}  // namespace pccl::master
