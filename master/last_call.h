// last_call: the last call of a member, and the clause that says what the member does instead of
// making the call that others wait for. Every text about a missing member uses the clause: the
// notice while others wait, and the error when they give up. Pure values and functions.
#pragma once

#include <string>
#include <variant>

#include "csrc/base/clock.h"
#include "csrc/protocol/messages.h"

namespace pccl::master {

// The last call of a member, and when the member made it.
struct LastCall {
  // It came before the master was started again, and the member has not repeated it.
  struct Unknown {};
  // The member has called nothing since it was admitted. `at` is the time of the admission.
  struct Nothing {};
  struct Operation {
    OpKey key;
    protocol::OpKind kind = protocol::OpKind::kAllReduce;
    std::string tag;
  };
  std::variant<Unknown, Nothing, Operation, protocol::JointKind> call;
  Instant at;
  Instant ended{};  // if the call has an outcome
};

// The last call of `peer`, as this Begin describes it.
LastCall last_call(PeerId peer, OpKey key, const protocol::OpInfo& info, Instant now);

struct Situation {
  bool connected = true;  // to the master
  bool waits = false;     // the last call has no outcome yet
};

// A clause about the member: "which has been in update_topology for 12 s", "which has not called
// anything for 40 s, since all_reduce (#6)".
std::string last_call_text(const LastCall& last, Situation situation, Instant now);

}  // namespace pccl::master
