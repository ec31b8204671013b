// AwaitedCall: a call in which some members of a group wait for other members, as facts.
// wait_texts.h describes it. Pure values and functions of the const view of a run.
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

// Members of a group that have not made a call. No rank: the loss of a member is still to be
// recorded.
struct Absent {
  GroupId group;
  std::vector<uint32_t> ranks;
};

struct AwaitedCall {
  std::variant<OpKey, protocol::JointKind> call;
  Instant since;
  std::vector<PeerId> waiting;
  // None: other calls of the members that wait have to end first.
  std::vector<Absent> absent;
  bool is_facing = false;  // a send; its receiver waits in a send to the sender
};

// The calls in which members of this group wait: operations first, then the open joint call.
std::vector<AwaitedCall> awaited_calls(const Groups& groups, const Group& group);

// The members of all groups that have not made this joint call, by group.
std::vector<Absent> absent_from(const Groups& groups, protocol::JointKind kind);

}  // namespace pccl::master
