// request: turns a call of the application into an operation. It checks the call, describes the
// operation in the same words on every member, computes its key, and builds its task for the ring.
// All functions here are pure: every member computes the same result from the same input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/peer/membership.h"

namespace pccl::peer {

// A tag that no application can use, because it is not text: the byte 0xff, then `text`. Both ends
// of a send or of a state transfer compute the same tag.
TagId reserved_tag(const std::string& text);

// The tag under which an operation is numbered: the user's tag; for send and recv, a tag that
// belongs to the two peers and the user's tag.
TagId tag_of(const protocol::OpInfo& info);

// kInvalidArgument for a call that has no meaning in this epoch.
Status check(const OpRequest& request, const Membership& membership);

// REQUIRES: check() was ok. world_size is not set here: the caller sets it from the epoch of the
// operation's start.
protocol::OpInfo info_of(const OpRequest& request, const Membership& membership);

// The error if an operation of an earlier epoch cannot continue in this one; otherwise ok.
Status check_after_change(const protocol::OpInfo& info, const Membership& membership);

// Whether a member that does not have the shared state yet is absent from this operation
// (PROTOCOL.md, section 6): it is, if the operation is a sum or an average and has elements. Every
// other operation needs the tensors of all members.
bool can_be_absent_from(const protocol::OpInfo& info);
// The set with this member, if it can be absent from the operation; otherwise the empty set.
protocol::AbsentRanks absence_from(const protocol::OpInfo& info, const Membership& membership);
// The members that are not absent, in rank order.
std::vector<PeerId> present(protocol::AbsentRanks absent, const Membership& membership);
// kInvalidState if this member cannot be absent from the operation: the application has to wait for
// the shared state first.
Status check_absent(const OpRequest& request, const Membership& membership);

// kInvalidArgument if the format of the operation is too coarse for the pattern that it has in this
// epoch. The call itself may be right: a smaller group has another pattern. The result is the same
// on all members of the epoch.
Status check_format(const protocol::OpInfo& info, const Membership& membership);

// REQUIRES: check_format() is ok; not a barrier, which moves no data; root and receiver are
// members; a send is from or to this peer.
ring::Task task_of(const protocol::OpInfo& info, OpKey key, Handle handle,
                   const Membership& membership);

// The peers that need more than one lane in this task, on direct wan paths: an idle lane sends only
// ten segments in its first round trip, and a lane has one window.
std::vector<PeerId> wide_legs(const ring::Task& task, const Membership& membership);

// The rank at each index of the task. The index is the ring index, or the rank if the task has
// parts.
std::vector<uint32_t> order_of(const ring::Task& task, const Membership& membership);

// "all_reduce(sum, float32, 1024 elements, world size 2) (layer.3, #12) in epoch 1.5". A transfer
// is a recv if this peer is its receiver.
std::string name(protocol::OpInfo info, OpKey key, const Membership& membership);

}  // namespace pccl::peer
