#include "csrc/peer/request.h"

#include <set>

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::OpInfo;
using protocol::OpKind;

// Four peers, 1.1 to 1.4 in rank order, with the ring order 0 2 1 3; or only the first two of them.
class RequestTest : public testing::Test {
 protected:
  Membership seen_by(uint32_t peer, uint32_t one_shot_bytes = 0, uint32_t world = 4,
                     uint32_t rtt = 0, const std::vector<uint16_t>& shares = {},
                     std::vector<uint32_t> ring = {0, 2, 1, 3},
                     const protocol::DirectSizes& direct = {}) {
    context_.effects = &effects_;
    Membership membership(context_);
    for (const Phase phase : {Phase::kConnecting, Phase::kHandshaking, Phase::kWelcomed})
      membership.enter(phase);
    protocol::Welcome welcome;
    welcome.peer = peer_id(peer);
    membership.welcome(welcome);
    membership.enter(Phase::kRegistered);
    Transcript t;
    protocol::EpochStart start =
        world == 4 ? t.start_of(1, {1, 2, 3, 4}, ring) : t.start_of(1, {1, 2}, {0, 1});
    start.shares = shares;
    start.direct = direct;
    start.one_shot_bytes = one_shot_bytes;
    start.rtt = rtt;
    EXPECT_TRUE(membership.begin(start).ok());
    return membership;
  }
  static OpRequest request(OpKind kind, int32_t root = -1) {
    OpRequest out;
    out.kind = kind;
    out.root = root;
    out.count = 10;
    out.tag = "layer";
    return out;
  }
  static std::vector<PeerId> peers_of(const ring::Task& task) {
    std::vector<PeerId> peers;
    for (const ring::Part& part : task.parts) peers.push_back(part.peer);
    return peers;
  }
  static OpKey key() { return {tag_id("layer"), 0}; }

  Context context_;
  Effects effects_;
};

TEST_F(RequestTest, BothEndsOfASendDescribeTheSame) {
  const OpInfo sent = info_of(request(OpKind::kSend, 2), seen_by(1));
  const OpInfo received = info_of(request(OpKind::kRecv, 0), seen_by(3));
  EXPECT_EQ(sent, received);
  EXPECT_EQ(tag_of(sent), tag_of(received));
  EXPECT_EQ(sent.root, peer_id(1));
  EXPECT_EQ(sent.receiver, peer_id(3));
}

TEST_F(RequestTest, ASendShiftsNobodyElsesNumbers) {
  const TagId one = tag_of(info_of(request(OpKind::kSend, 2), seen_by(1)));
  EXPECT_NE(one, tag_of(info_of(request(OpKind::kSend, 1), seen_by(1))));  // another destination
  EXPECT_NE(one, tag_of(info_of(request(OpKind::kRecv, 2), seen_by(1))));  // the other direction
  EXPECT_NE(one, tag_of(info_of(request(OpKind::kAllReduce), seen_by(1))));
  EXPECT_NE(one, tag_id("p2p 1.1 1.3 layer"));  // not a tag that an application can use
}

TEST_F(RequestTest, AnIrrelevantFieldCannotDiffer) {
  OpRequest a = request(OpKind::kBarrier), b = request(OpKind::kBarrier);
  b.count = 7;
  b.dtype = DType::kInt8;
  EXPECT_EQ(info_of(a, seen_by(1)), info_of(b, seen_by(1)));
  a = request(OpKind::kAllGather), b = request(OpKind::kAllGather);
  b.reduce = ReduceOp::kMax;
  b.root = 3;
  EXPECT_EQ(info_of(a, seen_by(1)), info_of(b, seen_by(1)));
}

TEST_F(RequestTest, AroundTheRing) {
  const uint32_t places[] = {0, 2, 1, 3};  // ring indices of peers 1.1 to 1.4
  const uint32_t upstream[] = {4, 3, 1, 2}, downstream[] = {3, 4, 2, 1};
  for (uint32_t peer = 1; peer <= 4; ++peer) {
    const Membership membership = seen_by(peer);
    const ring::Task task =
        task_of(info_of(request(OpKind::kAllReduce), membership), key(), 9, membership);
    EXPECT_EQ(task.shape.rank, places[peer - 1]);
    EXPECT_EQ(task.shape.world, 4u);
    EXPECT_EQ(task.shape.count, 10u);
    EXPECT_EQ(task.shape.element_bytes, 4u);
    EXPECT_EQ(task.upstream, peer_id(upstream[peer - 1]));
    EXPECT_EQ(task.downstream, peer_id(downstream[peer - 1]));
  }
}

TEST_F(RequestTest, UpToTheSizeOfTheEpochItIsExchanged) {
  const Membership membership = seen_by(2, 40);  // ten elements of four bytes
  const ring::Task task =
      task_of(info_of(request(OpKind::kAllReduce), membership), key(), 9, membership);
  EXPECT_EQ(task.shape.pattern, ring::Pattern::kOneShot);
  EXPECT_EQ(task.shape.rank, 1u) << "by rank, whatever the ring is";
  EXPECT_EQ(peers_of(task), (std::vector<PeerId>{peer_id(1), peer_id(2), peer_id(3), peer_id(4)}));
  EXPECT_FALSE(task.upstream || task.downstream);
  const Membership around = seen_by(2, 39);
  EXPECT_EQ(task_of(info_of(request(OpKind::kAllReduce), around), key(), 9, around).shape.pattern,
            ring::Pattern::kAllReduce);
  EXPECT_EQ(task_of(info_of(request(OpKind::kAllGather), around), key(), 9, around).shape.pattern,
            ring::Pattern::kAllGather);
}

TEST_F(RequestTest, UnevenPartsAreExchangedIfAllMembersKnowThatTheyAreSmall) {
  OpRequest uneven = request(OpKind::kAllGather);
  uneven.count = 0;
  uneven.sends = {3, 3, 3, 3};
  uneven.receives = {10, 3, 0, 7};
  for (const uint32_t one_shot_bytes : {39u, 40u}) {
    const Membership membership = seen_by(2, one_shot_bytes);
    const ring::Task task = task_of(info_of(uneven, membership), key(), 9, membership);
    const bool small = one_shot_bytes == 40;
    EXPECT_EQ(task.shape.pattern,
              small ? ring::Pattern::kOneShotExchange : ring::Pattern::kExchange);
    EXPECT_EQ(task.shape.count, small ? 10u : 0u);
    std::vector<uint64_t> from, to;
    for (const ring::Part& part : task.parts) {
      from.push_back(part.from);
      to.push_back(part.to);
    }
    EXPECT_EQ(from, (std::vector<uint64_t>{40, 12, 0, 28}));
    EXPECT_EQ(to, (std::vector<uint64_t>{12, 12, 12, 12}));
  }
  uneven.kind = OpKind::kAllToAll;  // the largest part may be between two others
  const Membership membership = seen_by(2, 1000);
  EXPECT_EQ(task_of(info_of(uneven, membership), key(), 9, membership).shape.pattern,
            ring::Pattern::kExchange);
}

TEST_F(RequestTest, TwoThatAreFarFromEachOtherReduceMutually) {
  for (const uint32_t microseconds : {999u, 1000u}) {
    const Membership membership = seen_by(1, 39, 2, microseconds);
    const ring::Task task =
        task_of(info_of(request(OpKind::kAllReduce), membership), key(), 9, membership);
    EXPECT_EQ(task.shape.pattern,
              microseconds == 1000 ? ring::Pattern::kPairwise : ring::Pattern::kAllReduce);
    EXPECT_EQ(task.shape.world, 2u);
    EXPECT_EQ(task.upstream, peer_id(2));
    EXPECT_EQ(task.downstream, peer_id(2));
  }
  const Membership four = seen_by(1, 39, 4, 1000);
  EXPECT_EQ(task_of(info_of(request(OpKind::kAllReduce), four), key(), 9, four).shape.pattern,
            ring::Pattern::kAllReduce);
}

TEST_F(RequestTest, AQuantizedAllReduceDoesNotGoAroundTheRing) {
  OpRequest quantized = request(OpKind::kAllReduce);
  quantized.format = {8, 256, 8};
  const auto task_in = [&](const Membership& membership) {
    return task_of(info_of(quantized, membership), key(), 9, membership);
  };
  const ring::Task four = task_in(seen_by(2, 39));
  EXPECT_EQ(four.shape.pattern, ring::Pattern::kDirect);
  EXPECT_EQ(four.shape.format, quantized.format);
  EXPECT_EQ(four.shape.shares, (std::vector<uint16_t>{64, 64, 64, 64}));
  EXPECT_NE(four.digest,
            task_of(info_of(request(OpKind::kAllReduce), seen_by(2, 39)), key(), 9, seen_by(2, 39))
                .digest);
  const ring::Task two = task_in(seen_by(1, 39, 2, 0));
  EXPECT_EQ(two.shape.pattern, ring::Pattern::kPairwise);
  EXPECT_EQ(two.shape.format, quantized.format);
  const ring::Task small = task_in(seen_by(2, 40));
  EXPECT_EQ(small.shape.pattern, ring::Pattern::kOneShot);
  EXPECT_FALSE(small.shape.format.quantizes());
}

TEST_F(RequestTest, AQuantizedAllReduceGoesAroundTheRingIfTheRunAsksForIt) {
  context_.settings.pattern = protocol::PatternChoice::kRing;
  OpRequest quantized = request(OpKind::kAllReduce);
  quantized.format = {8, 256, 8, true};
  const auto task_in = [&](const Membership& membership) {
    return task_of(info_of(quantized, membership), key(), 9, membership);
  };
  const Membership membership = seen_by(2, 39);
  const ring::Task four = task_in(membership);
  EXPECT_EQ(four.shape.pattern, ring::Pattern::kAllReduce);
  EXPECT_EQ(four.shape.format, quantized.format);
  EXPECT_TRUE(four.parts.empty());
  EXPECT_EQ(four.upstream, peer_id(3)) << "the ring is 0 2 1 3";
  EXPECT_EQ(four.downstream, peer_id(4));
  EXPECT_EQ(task_in(seen_by(1, 39, 2)).shape.pattern, ring::Pattern::kPairwise);
  EXPECT_EQ(task_in(seen_by(2, 40)).shape.pattern, ring::Pattern::kOneShot);
  // A hop has its own random bits: those of a contribution, of a partial sum and of the result
  // differ, and so do those of two members.
  const ring::Shape::Random random = four.shape.random;
  const ring::Shape::Random others = task_in(seen_by(3, 39)).shape.random;
  const std::set<uint64_t> keys = {random.own, random.partial, random.result, others.own,
                                   others.partial};
  EXPECT_EQ(keys.size(), 5u);
  EXPECT_EQ(random.result, others.result);
}

TEST_F(RequestTest, FourBitsDoNotGoAroundARing) {
  OpRequest quantized = request(OpKind::kAllReduce);
  quantized.format = {4, 64, 8};
  const auto checked = [&](const Membership& membership) {
    return check_format(info_of(quantized, membership), membership).message;
  };
  EXPECT_EQ(checked(seen_by(1, 39)), "");
  context_.settings.pattern = protocol::PatternChoice::kRing;
  EXPECT_EQ(checked(seen_by(1, 39)),
            "all_reduce: quantize=MinMax(bits=4, block=64, result_bits=8) does not go around a "
            "ring of 4 members (PCCL_PATTERN=ring): each of its 3 hops would round the sum to 4 "
            "bits once more; use bits=8 or BFloat16(), or set another PCCL_PATTERN on all peers");
  EXPECT_EQ(checked(seen_by(1, 40)), "") << "a small tensor is not quantized";
  EXPECT_EQ(checked(seen_by(1, 39, 2)), "") << "two members exchange their tensors";
  quantized.format = {8, 256, 8};
  EXPECT_EQ(checked(seen_by(1, 39)), "");
}

TEST_F(RequestTest, LegsOnWanPathsThatCarryMuchTakeSeveralLanes) {
  OpRequest quantized = request(OpKind::kAllReduce);
  quantized.format = {8, 256, 8};
  const auto legs = [&](uint64_t count, uint32_t rtt_us) {
    quantized.count = count;
    const Membership membership = seen_by(2, 39, 4, rtt_us);
    return wide_legs(task_of(info_of(quantized, membership), key(), 9, membership), membership);
  };
  const uint64_t at_once = 4 * (14 << 10);  // elements of which each leg carries ten segments
  EXPECT_EQ(legs(at_once, 1000), (std::vector<PeerId>{}));
  EXPECT_EQ(legs(at_once + 4, 1000), (std::vector<PeerId>{peer_id(1), peer_id(3), peer_id(4)}));
  EXPECT_EQ(legs(at_once + 4, 999), (std::vector<PeerId>{})) << "on one machine one lane is best";

  OpRequest exchange = request(OpKind::kAllToAll);
  exchange.count = 0;
  exchange.sends = {1 << 20, 0, 0, 0};
  exchange.receives = {0, 0, 1 << 20, 10};
  const Membership membership = seen_by(2, 39, 4, 1000);
  EXPECT_EQ(wide_legs(task_of(info_of(exchange, membership), key(), 9, membership), membership),
            (std::vector<PeerId>{peer_id(1), peer_id(3)}));
  const OpRequest plain = request(OpKind::kAllReduce);
  EXPECT_EQ(wide_legs(task_of(info_of(plain, membership), key(), 9, membership), membership),
            (std::vector<PeerId>{}))
      << "around the ring";
}

TEST_F(RequestTest, ABroadcastGoesAroundTheRingFromItsRoot) {
  // The root is rank 1, peer 1.2. The data then passes 1.4, 1.1 and 1.3.
  const uint32_t distance[] = {2, 0, 3, 1};
  const uint32_t upstream[] = {4, 0, 1, 2}, downstream[] = {3, 4, 0, 1};
  for (uint32_t peer = 1; peer <= 4; ++peer) {
    const Membership membership = seen_by(peer);
    const ring::Task task =
        task_of(info_of(request(OpKind::kBroadcast, 1), membership), key(), 9, membership);
    EXPECT_EQ(task.shape.rank, distance[peer - 1]);
    EXPECT_EQ(task.upstream, upstream[peer - 1] == 0 ? PeerId{} : peer_id(upstream[peer - 1]));
    EXPECT_EQ(task.downstream,
              downstream[peer - 1] == 0 ? PeerId{} : peer_id(downstream[peer - 1]));
  }
}

TEST_F(RequestTest, ATransferHasTwoEnds) {
  const Membership source = seen_by(1), destination = seen_by(3);
  const ring::Task sends = task_of(info_of(request(OpKind::kSend, 2), source), key(), 9, source);
  const ring::Task receives =
      task_of(info_of(request(OpKind::kRecv, 0), destination), key(), 9, destination);
  EXPECT_EQ(sends.shape.rank, 0u);
  EXPECT_EQ(sends.downstream, peer_id(3));
  EXPECT_EQ(sends.upstream, PeerId{});
  EXPECT_EQ(receives.shape.rank, 1u);
  EXPECT_EQ(receives.upstream, peer_id(1));
  EXPECT_EQ(receives.downstream, PeerId{});
  for (const ring::Task& task : {sends, receives}) {
    EXPECT_EQ(task.shape.world, 2u);
    EXPECT_EQ(task.shape.block_bytes, std::vector<uint64_t>{40});
  }
  EXPECT_EQ(sends.digest, receives.digest);
}

TEST_F(RequestTest, CallsThatMeanNothing) {
  const Membership membership = seen_by(1);
  EXPECT_TRUE(check(request(OpKind::kBroadcast, 0), membership).ok());
  EXPECT_EQ(check(request(OpKind::kBroadcast, 4), membership).message,
            "broadcast: there is no rank 4: the world size is 4");
  EXPECT_EQ(check(request(OpKind::kSend, -1), membership).message,
            "send: there is no rank -1: the world size is 4");
  EXPECT_EQ(check(request(OpKind::kRecv, 0), membership).message,
            "recv: rank 0 is this process itself");
  OpRequest wrong = request(OpKind::kAllReduce);
  wrong.tag = std::string(257, 'x');
  EXPECT_EQ(check(wrong, membership).message,
            "all_reduce: the tag has 257 bytes, at most 256 are allowed");
  wrong = request(OpKind::kAllGather);
  wrong.count = uint64_t{1} << 43;
  EXPECT_EQ(check(wrong, membership).message,
            "all_gather: 8796093022208 elements of float32 are more than 17592186044416 bytes");
  wrong = request(OpKind::kAllReduce);
  wrong.dtype = DType::kBytes;
  EXPECT_EQ(check(wrong, membership).code, Code::kInvalidArgument);
  wrong = request(OpKind::kAllReduce);
  wrong.format = {8, 256, 8};
  wrong.dtype = DType::kInt32;
  EXPECT_EQ(check(wrong, membership).message,
            "all_reduce: quantize=MinMax(bits=8, block=256, result_bits=8) is for float32, float16 "
            "and bfloat16, not for int32");
}

TEST_F(RequestTest, AnOperationThatNamesRanksMayNotOutliveThem) {
  const Membership membership = seen_by(1);
  EXPECT_TRUE(
      check_after_change(info_of(request(OpKind::kAllReduce), membership), membership).ok());
  EXPECT_TRUE(
      check_after_change(info_of(request(OpKind::kBroadcast, 3), membership), membership).ok());
  OpInfo info = info_of(request(OpKind::kBroadcast, 3), membership);
  info.root = peer_id(9);
  EXPECT_EQ(check_after_change(info, membership).message,
            "broadcast was called while the membership changed: peer 1.9 has left; look at the new "
            "ranks and call it again");
  EXPECT_EQ(check_after_change(info, membership).peer, peer_id(9));
  EXPECT_EQ(check_after_change(info_of(request(OpKind::kAllGather), membership), membership).code,
            Code::kMembershipChanged);
}

TEST_F(RequestTest, WithSharesAllReducesAreDirect) {
  const std::vector<uint16_t> shares = {0, 200, 56, 0};
  for (const std::vector<uint32_t>& ring :
       {std::vector<uint32_t>{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}}) {
    const Membership membership = seen_by(2, 20, 4, 0, shares, ring);
    const ring::Task task =
        task_of(info_of(request(OpKind::kAllReduce), membership), key(), 9, membership);
    EXPECT_EQ(task.shape.pattern, ring::Pattern::kDirect);
    EXPECT_EQ(task.shape.rank, 1u);
    EXPECT_EQ(task.shape.shares, shares);
    EXPECT_EQ(peers_of(task),
              (std::vector<PeerId>{peer_id(1), peer_id(2), peer_id(3), peer_id(4)}));
    EXPECT_FALSE(task.upstream || task.downstream);
    EXPECT_EQ(order_of(task, membership), (std::vector<uint32_t>{0, 1, 2, 3}));
    const ring::Task other =
        task_of(info_of(request(OpKind::kAllGather), membership), key(), 9, membership);
    EXPECT_EQ(other.shape.pattern, ring::Pattern::kAllGather);
    EXPECT_EQ(order_of(other, membership), ring);
  }
  const Membership small = seen_by(2, 40, 4, 0, shares);
  EXPECT_EQ(task_of(info_of(request(OpKind::kAllReduce), small), key(), 9, small).shape.pattern,
            ring::Pattern::kOneShot);
  const Membership two = seen_by(2, 0, 2, 1000, {128, 128});
  EXPECT_EQ(task_of(info_of(request(OpKind::kAllReduce), two), key(), 9, two).shape.pattern,
            ring::Pattern::kPairwise)
      << "one round trip less, and the same bits";
}

TEST_F(RequestTest, SharesAreForTheSizesThatTheEpochSays) {
  const auto pattern = [this](const protocol::DirectSizes& direct) {
    const Membership membership = seen_by(2, 20, 4, 0, {64, 64, 64, 64}, {0, 2, 1, 3}, direct);
    const ring::Task task =  // 40 bytes
        task_of(info_of(request(OpKind::kAllReduce), membership), key(), 9, membership);
    EXPECT_EQ(order_of(task, membership), task.shape.pattern == ring::Pattern::kDirect
                                              ? (std::vector<uint32_t>{0, 1, 2, 3})
                                              : (std::vector<uint32_t>{0, 2, 1, 3}));
    return task.shape.pattern;
  };
  EXPECT_EQ(pattern({40, 41}), ring::Pattern::kDirect);
  EXPECT_EQ(pattern({41, 100}), ring::Pattern::kAllReduce);
  EXPECT_EQ(pattern({0, 40}), ring::Pattern::kAllReduce);
}

}  // namespace
}  // namespace pccl::peer
