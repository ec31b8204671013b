// code: the kinds of failure that pccl reports. There is exactly one code for each Python error
// class. Only csrc/torch/errors.cc converts them. The numbers are sent over the network.
#pragma once

#include <cstdint>

namespace pccl {

enum class Code : uint8_t {
  kOk = 0,
  kPeerLost = 1,           // PeerLostError: a member of the group was lost
  kTooFewPeers = 2,        // TooFewPeersError: fewer than min_peers members until a timeout
  kMembershipChanged = 3,  // MembershipChangedError: update_topology ended the operation
  kMismatch = 4,  // CollectiveMismatchError: ranks called different operations under one number
  kOperationTimeout = 5,  // OperationTimeoutError
  kInvalidState = 6,      // InvalidStateError: a call that the present state does not allow
  kSharedState = 7,       // SharedStateError
  kMasterLost = 8,        // MasterLostError
  kKicked = 9,            // KickedError: this peer was declared lost
  kAuthentication = 10,   // AuthenticationError
  kTopology = 11,         // TopologyError
  kInvalidArgument = 12,  // ValueError
  kSystem = 13,           // OSError: the system refused (port taken, no route, ...)
  kProtocol = 14,         // PcclError: the other side broke the protocol, or speaks another version
};

// The text for a code in logs: "peer lost".
const char* text(Code code);

}  // namespace pccl
