// request: how a call of the application becomes an operation: what must hold of it, how all
// members describe it, under which key they count it, and what the ring has to do. Pure functions
// of the call and the epoch: every member computes the same from the same.
#pragma once

#include <string>

#include "csrc/peer/membership.h"

namespace pccl::peer {

// A tag that no application can name, since it is no text: 0xff and then `text`. Both ends of a
// send or of a transfer of state compute it alike.
TagId reserved_tag(const std::string& text);

// The tag under which an operation is counted: the user's, but for send/recv one of the two peers'
// own.
TagId tag_of(const protocol::OpInfo& info);

// kInvalidArgument for a call that can mean nothing in this epoch.
Status check(const OpRequest& request, const Membership& membership);

// REQUIRES: check() was ok. Without world_size, which is the epoch's in which it starts.
protocol::OpInfo info_of(const OpRequest& request, const Membership& membership);

// Why an operation that was called in an epoch that is over cannot go on in this one, if it cannot.
Status check_after_change(const protocol::OpInfo& info, const Membership& membership);

// REQUIRES: not a barrier, which moves no data; root and receiver are members.
ring::Task task_of(const protocol::OpInfo& info, OpKey key, Handle handle,
                   const Membership& membership);

// "all_reduce(sum, float32, 1024 elements, world size 2) (layer.3, #12) in epoch 1.5"
std::string name(const protocol::OpInfo& info, OpKey key, Epoch epoch);

}  // namespace pccl::peer
