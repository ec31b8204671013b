// Rendezvous: how the processes of a reconfigure find each other. Plain values: Hello has a
// Rendezvous (messages.h), and the application carries the text of a ReconfigureHandle
// (reconfigure_handle.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/code.h"
#include "csrc/base/endpoint.h"

namespace pccl::protocol {

struct ReconfigureHandle {
  static constexpr size_t kGroupDigits = 16, kKeyDigits = 64;
  Endpoint at;              // the master of the process
  std::string group;        // random, kGroupDigits hexadecimal digits: one group of one process
  uint64_t generation = 0;  // grows by one with each reconfigure of the group
  // Public: kKeyDigits hexadecimal digits (csrc/net/handle_keys.h). Empty: connections between the
  // processes need no key of a handle, because they have a token, or are in plain text.
  std::string key = {};
  bool operator==(const ReconfigureHandle&) const = default;
};

// In a Hello of a reconfigure (section 2.1). A peer that has called it wants to meet the other
// listed processes at the master of the first one. And that master invites each of them: it wants
// to learn at once if the process is gone, or has called something else.
struct Rendezvous {
  int64_t uuid = 0;
  std::vector<ReconfigureHandle> handles;  // in the order of the ranks
  uint32_t rank = 0;                       // of this peer; of the invited process
  // Not empty: this peer does not take part, for this reason, so nobody shall wait for it.
  std::string refusal = {};
  bool invites = false;
  bool operator==(const Rendezvous&) const = default;
};

// Member -> its master: this member has called a reconfigure of processes that are all members of
// this run. It need not connect to the host of the reconfigure again, which is the host of this run
// (section 2.1). With a refusal, it gives up the call that it has announced.
struct Regroup {
  Rendezvous with;
  uint32_t timeout_ms = 0;  // so long it waits for the others
  bool operator==(const Regroup&) const = default;
};

// Master -> member: the run stays as it is. kOk: the listed processes found another one, and this
// member has to come there. An EpochStart is the other answer to a Regroup.
struct Regrouped {
  int64_t uuid = 0;
  Code code = Code::kOk;
  std::string text;  // the reason; empty if kOk
  bool operator==(const Regrouped&) const = default;
};

}  // namespace pccl::protocol
