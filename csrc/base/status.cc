#include "csrc/base/status.h"

namespace pccl {

const char* text(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kPeerLost: return "peer lost";
    case Code::kTooFewPeers: return "too few peers";
    case Code::kMembershipChanged: return "membership changed";
    case Code::kMismatch: return "collective mismatch";
    case Code::kOperationTimeout: return "operation timeout";
    case Code::kInvalidState: return "invalid state";
    case Code::kSharedState: return "shared state";
    case Code::kMasterLost: return "master lost";
    case Code::kKicked: return "kicked";
    case Code::kAuthentication: return "authentication";
    case Code::kTopology: return "topology";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kSystem: return "system";
    case Code::kProtocol: return "protocol";
  }
  return "unknown";
}

}  // namespace pccl
