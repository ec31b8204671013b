// decision_mac: authenticates the decisions of a master that are not durable: verdicts, and answers
// to joint calls (PROTOCOL.md, section 7). A restarted master gets them back from the members. The
// MAC of a decision shows that a master of this run has made it, so no member can invent one.
#pragma once

#include "csrc/base/status.h"
#include "csrc/protocol/messages.h"

namespace pccl::master {

// Of verdict number `index` of an epoch. The text does not count, because a member may leave it
// out.
uint64_t mac_of(const protocol::Key& decisions, Epoch epoch, uint64_t index,
                const protocol::Verdict& verdict);
uint64_t mac_of(const protocol::Key& decisions, Epoch generation, const protocol::Answer& answer);

// kProtocol if the member shows a verdict of its epoch or an answer that no master of this run has
// made, or omits verdicts that members may need.
Status check_decisions(const protocol::Key& decisions, Epoch generation,
                       const protocol::Resume& resume);

}  // namespace pccl::master
