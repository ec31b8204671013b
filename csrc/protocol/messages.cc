#include "csrc/protocol/messages.h"

#include <chrono>

#include "csrc/protocol/limits.h"

namespace pccl::protocol {

std::string text(const Member& member, const std::string& more) {
  const std::string peer = "peer " + text(member.peer);
  std::string rest = more;
  if (!member.address.empty()) rest += (more.empty() ? "" : ", ") + member.address;
  if (member.name.empty()) return rest.empty() ? peer : peer + " (" + rest + ")";
  return member.name + " (" + peer + (rest.empty() ? "" : ", " + rest) + ")";
}

const char* text(JointKind kind) {
  switch (kind) {
    case JointKind::kUpdateTopology: return "update_topology";
    case JointKind::kArePeersPending: return "are_peers_pending";
    case JointKind::kSyncSharedState: return "sync_shared_state";
    case JointKind::kOptimizeTopology: return "optimize_topology";
  }
  return "unknown";
}

bool is_wan(const EpochStart& start) { return std::chrono::microseconds(start.rtt) >= kWanRttMin; }

}  // namespace pccl::protocol
