// last_call: the last call of a member, and a clause about its present activity, for members that
// others wait for. Every text about a missing member uses the clause: the notice while others wait,
// the error when these others give up, and the diagnosis of the run. Pure values and functions.
#pragma once

#include <string>
#include <variant>

#include "csrc/base/clock.h"
#include "csrc/protocol/messages.h"

namespace pccl::master {

// The last call of a member, and when the member made it.
struct LastCall {
  // The call was made before the master was started again, and the member has not repeated it.
  struct Unknown {};
  // The member has called nothing since it was admitted. `at` is the time of the admission.
  struct Nothing {};
  struct Operation {
    OpKey key;
    protocol::OpKind kind = protocol::OpKind::kAllReduce;
    std::string tag;
  };
  struct AnySend {};  // a receive from any source that has found no send yet
  std::variant<Unknown, Nothing, Operation, protocol::JointKind, AnySend> call;
  Instant at;
  Instant ended{};       // time of the outcome, if there is one
  bool gave_up = false;  // the outcome is a timeout

  void end(Code outcome, Instant now);
};

// Whether the member has just given up its last call: it was in the call for longer than the time
// since it gave up. Texts then name the call that it gave up. So two members that wait for each
// other get the same reason, although one of them times out first.
bool gave_up_lately(const LastCall& last, Instant now);

// The last call of `peer`, as this Begin describes it.
LastCall last_call(PeerId peer, OpKey key, const protocol::OpInfo& info, Instant now);

struct Situation {
  bool connected = true;  // to the master
  bool waits = false;     // the last call has no outcome yet
};

// The present activity of the member: "has been in update_topology for 12 s", "has not called
// anything for 40 s, since all_reduce (#6)", "was in all_reduce (#6) for 10 s and gave it up 2 ms
// ago".
std::string last_call_text(const LastCall& last, Situation situation, Instant now);

}  // namespace pccl::master
