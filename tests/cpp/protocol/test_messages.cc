#include "csrc/protocol/messages.h"

#include <gtest/gtest.h>

#include <set>

#include "csrc/protocol/limits.h"

namespace pccl::protocol {
namespace {

OpInfo info() {
  return {.kind = OpKind::kAllReduce,
          .dtype = DType::kFloat32,
          .reduce = ReduceOp::kSum,
          .count = 1048576,
          .world_size = 4,
          .tag = "layer.3"};
}

TEST(Digest, EveryFieldCounts) {
  std::vector<OpInfo> variants(9, info());
  variants[1].kind = OpKind::kBroadcast;
  variants[2].dtype = DType::kFloat64;
  variants[3].reduce = ReduceOp::kMax;
  variants[4].count += 1;
  variants[5].root = PeerId{1};
  variants[6].receiver = PeerId{1};
  variants[7].world_size = 3;
  variants[8].tag = "layer.4";
  std::set<uint64_t> digests;
  for (const OpInfo& variant : variants) digests.insert(digest(variant));
  EXPECT_EQ(digests.size(), variants.size());
  EXPECT_EQ(digest(info()), digest(info()));
  EXPECT_NE(digest(OpInfo{}), 0u);
}

// Peers of different builds compare digests, so the function is part of the protocol.
TEST(Digest, IsFixed) { EXPECT_EQ(digest(info()), 11879401720796607274u); }

TEST(Text, SaysWhatAnOperationIs) {
  OpInfo op = info();
  EXPECT_EQ(text(op), "all_reduce(sum, float32, 1048576 elements, world size 4)");
  op.kind = OpKind::kAllGather;
  op.count = 1;
  EXPECT_EQ(text(op), "all_gather(float32, 1 element, world size 4)");
  op.kind = OpKind::kBroadcast;
  op.root = PeerId{(0x65a1ull << 32) | 3};
  EXPECT_EQ(text(op), "broadcast(float32, 1 element, from peer 65a1.3, world size 4)");
  op.kind = OpKind::kSend;
  op.receiver = PeerId{(0x65a1ull << 32) | 4};
  EXPECT_EQ(text(op), "send(float32, 1 element, from peer 65a1.3 to peer 65a1.4, world size 4)");
  op.kind = OpKind::kBarrier;
  EXPECT_EQ(text(op), "barrier(world size 4)");
}

TEST(Text, NamesAnOperationByTagAndNumber) {
  EXPECT_EQ(text(info(), OpKey{TagId{1}, 12}), "(layer.3, #12)");
  EXPECT_EQ(text(OpInfo{}, OpKey{TagId{0}, 0}), "(#0)");
}

TEST(Text, JointCallsAreNamedAsInPython) {
  EXPECT_STREQ(text(JointKind::kUpdateTopology), "update_topology");
  EXPECT_STREQ(text(JointKind::kArePeersPending), "are_peers_pending");
  EXPECT_STREQ(text(JointKind::kSyncSharedState), "sync_shared_state");
}

}  // namespace
}  // namespace pccl::protocol
