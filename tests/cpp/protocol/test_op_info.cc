#include "csrc/protocol/op_info.h"

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
  std::vector<OpInfo> variants(15, info());
  variants[1].kind = OpKind::kBroadcast;
  variants[2].dtype = DType::kFloat64;
  variants[3].reduce = ReduceOp::kMax;
  variants[4].count += 1;
  variants[5].root = PeerId{1};
  variants[6].receiver = PeerId{1};
  variants[7].world_size = 3;
  variants[8].tag = "layer.4";
  variants[9].sends = variants[9].receives = {1, 2, 3, 4};
  variants[10].format = {8, 256, 8};
  variants[11].format = {4, 256, 8};
  variants[12].format = {8, 128, 8};
  variants[13].format = {8, 256, 16};
  variants[14].format = {8, 256, 8, true};
  std::set<uint64_t> digests;
  for (const OpInfo& variant : variants) digests.insert(digest(variant));
  EXPECT_EQ(digests.size(), variants.size());
  EXPECT_EQ(digest(info()), digest(info()));
  EXPECT_NE(digest(OpInfo{}), 0u);
}

TEST(Digest, LeavesOutTheCallSite) {
  OpInfo other = info();
  other.site = "train.py:42";
  EXPECT_EQ(digest(other), digest(info()));
  EXPECT_NE(other, info());
  EXPECT_TRUE(fit(other, 0, info(), 1));
  EXPECT_EQ(carried_bytes(other), carried_bytes(info()) + other.site.size());
}

// Peers of different builds compare digests, so the function is part of the protocol.
TEST(Digest, IsFixed) { EXPECT_EQ(digest(info()), 4043611369909867593u); }

TEST(RandomKey, DependsOnTheOperationAndOnThePeer) {
  const OpKey op{TagId{1}, 2};
  const std::set<uint64_t> keys = {random_key(Epoch{3}, op, PeerId{4}),
                                   random_key(Epoch{3}, op, {}),
                                   random_key(Epoch{3}, op, PeerId{5}),
                                   random_key(Epoch{4}, op, PeerId{4}),
                                   random_key(Epoch{3}, {TagId{2}, 2}, PeerId{4}),
                                   random_key(Epoch{3}, {TagId{1}, 3}, PeerId{4}),
                                   random_key(Epoch{3}, op, PeerId{4}, Rounded::kPartialSum),
                                   random_key(Epoch{3}, op, PeerId{5}, Rounded::kPartialSum)};
  EXPECT_EQ(keys.size(), 8u);
  EXPECT_TRUE(keys.contains(random_key(Epoch{3}, op, PeerId{4})));
}

// The sizes of uneven parts differ between the members. The digest of a part has its size.
TEST(Digest, ThePartsSizeCounts) {
  OpInfo one = info(), other = info();
  one.sends = one.receives = {1, 2, 3, 4};
  other.sends = other.receives = {4, 3, 2, 1};
  EXPECT_EQ(digest(one), digest(other));
  EXPECT_NE(digest_of_part(digest(one), 8), digest_of_part(digest(one), 16));
  EXPECT_NE(digest_of_part(digest(one), 0), 0u);
}

// A Resume carries both, for all operations in flight.
TEST(CarriedBytes, AreThoseOfTheTagAndOfTheSizesOfParts) {
  OpInfo one = info();
  EXPECT_EQ(carried_bytes(one), one.tag.size());
  one.sends = one.receives = {1, 2, 3};
  EXPECT_EQ(carried_bytes(one), one.tag.size() + 48);
}

TEST(Fit, EachPartHasOneSizeAtBothEnds) {
  OpInfo a = info();
  a.kind = OpKind::kAllToAll;
  a.count = 0;
  a.world_size = 2;
  a.sends = {1, 2};
  a.receives = {1, 3};
  OpInfo b = a;
  b.sends = {3, 5};
  b.receives = {2, 5};
  EXPECT_TRUE(fit(a, 0, b, 1) && fit(b, 1, a, 0) && fit(a, 0, a, 0));
  OpInfo wrong = b;
  wrong.receives = {4, 5};
  EXPECT_FALSE(fit(a, 0, wrong, 1) || fit(wrong, 1, a, 0));
  wrong.receives = {2, 6};
  EXPECT_FALSE(fit(wrong, 1, wrong, 1)) << "its part for itself";
  wrong = b;
  wrong.dtype = DType::kInt8;
  EXPECT_FALSE(fit(a, 0, wrong, 1));
  wrong = b;
  wrong.sends = wrong.receives = {};
  EXPECT_FALSE(fit(a, 0, wrong, 1)) << "all its parts have one size";
  wrong.sends = wrong.receives = {1, 2, 3};
  EXPECT_TRUE(fit(a, 0, wrong, 1)) << "it is to be aborted";
  EXPECT_TRUE(fit(info(), 0, info(), 1));
}

TEST(Text, SaysWhatAnOperationIs) {
  OpInfo op = info();
  EXPECT_EQ(text(op), "all_reduce(sum, float32, 1048576 elements, world size 4)");
  op.format = {16, 0, 16};
  EXPECT_EQ(text(op),
            "all_reduce(sum, float32, 1048576 elements, quantize=BFloat16(), world size 4)");
  op.format = {};
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

}  // namespace
}  // namespace pccl::protocol
