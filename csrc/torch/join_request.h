// join_request: turns the JoinOptions of Python into the request of a session. Any thread may call
// it. Failure: options that are out of range raise ValueError.
#pragma once

#include "csrc/base/clock.h"
#include "csrc/torch/join_options.h"
#include "csrc/torch/peer_session.h"

namespace pccl::torch_layer {

Duration to_duration(double seconds);
// REQUIRES: pccl_backend has checked the texts.
PeerSession::Request to_request(const JoinOptions& given);

}  // namespace pccl::torch_layer
