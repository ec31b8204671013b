#include "csrc/protocol/messages.h"

#include <gtest/gtest.h>

namespace pccl::protocol {
namespace {

TEST(Text, JointCallsAreNamedAsInPython) {
  EXPECT_STREQ(text(JointKind::kUpdateTopology), "update_topology");
  EXPECT_STREQ(text(JointKind::kArePeersPending), "are_peers_pending");
  EXPECT_STREQ(text(JointKind::kSyncSharedState), "sync_shared_state");
  EXPECT_STREQ(text(JointKind::kOptimizeTopology), "optimize_topology");
}

}  // namespace
}  // namespace pccl::protocol
