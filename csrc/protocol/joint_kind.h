// JointKind: the kinds of joint calls (PROTOCOL.md, section 5). Plain values.
#pragma once

#include <cstdint>

namespace pccl::protocol {

enum class JointKind : uint8_t {
  kUpdateTopology = 0,
  kArePeersPending = 1,
  kSyncSharedState = 2,
  kOptimizeTopology = 3
};
// Whether all groups of the run vote together in joint calls of this kind.
inline bool is_of_all_groups(JointKind kind) {
  return kind == JointKind::kUpdateTopology || kind == JointKind::kArePeersPending;
}
// Whether a peer that has voted in a call of this kind begins no operation before the answer.
inline bool closes_posting(JointKind kind) {
  return kind == JointKind::kUpdateTopology || kind == JointKind::kOptimizeTopology;
}

}  // namespace pccl::protocol
