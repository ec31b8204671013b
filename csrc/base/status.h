// status: Status reports a failure that comes from outside the program. Result<T> is a T, or the
// Status that says why there is none. Plain values; nothing below csrc/torch throws.
// There is exactly one code for each Python error class. Only csrc/torch/errors.cc converts them.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "csrc/base/assert.h"
#include "csrc/base/ids.h"

namespace pccl {

enum class Code : uint8_t {
  kOk = 0,
  kPeerLost = 1,     // PeerLostError: a member of the group was lost
  kTooFewPeers = 2,  // TooFewPeersError: fewer than min_peers for longer than the group's timeout
  kMembershipChanged = 3,  // MembershipChangedError: ended by a joint update_topology
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

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string message;
  PeerId peer{};  // the peer that the status is about, if any

  bool ok() const { return code == Code::kOk; }
  friend bool operator==(const Status&, const Status&) = default;
};

// The other side has sent what PROTOCOL.md forbids: its connection is closed. `what` names it.
inline Status violation(std::string what) { return {Code::kProtocol, std::move(what), {}}; }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}
  Result(Status status) : content_(std::move(status)) { PCCL_ASSERT(!this->status().ok()); }

  bool ok() const { return std::holds_alternative<T>(content_); }
  // REQUIRES: ok().
  T& value() {
    PCCL_ASSERT(ok());
    return std::get<T>(content_);
  }
  // REQUIRES: !ok().
  const Status& status() const { return std::get<Status>(content_); }

 private:
  std::variant<T, Status> content_;
};

// The text for a code in logs: "peer lost".
const char* text(Code code);

}  // namespace pccl
