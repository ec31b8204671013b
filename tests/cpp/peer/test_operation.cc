#include "csrc/peer/operation.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

// A member of an epoch of three, and an all-reduce with `keep` of 100 elements.
struct OperationTest : testing::Test {
  using State = Operation::State;
  OperationTest() {
    context.effects = &effects;
    for (const Phase phase : {Phase::kConnecting, Phase::kHandshaking, Phase::kWelcomed})
      membership.enter(phase);
    protocol::Welcome welcome;
    welcome.peer = peer_id(2);
    membership.welcome(welcome);
    membership.enter(Phase::kRegistered);
    EXPECT_TRUE(membership.begin(t.start_of(1, {1, 2, 3})).ok());
    membership.enter(Phase::kMember);
    op.info.count = 100;
    op.info.keep = true;
  }
  void run() {
    op.begin(membership);
    op.started = true;
    op.check(membership);
  }
  Transcript t;
  Context context;
  Effects effects;
  Membership membership{context};
  Operation op;
  const OpKey key{tag_id("t"), 0};
};

TEST_F(OperationTest, ReportsItsProgressUntilItIsDone) {
  run();
  op.finished = 40;
  EXPECT_EQ(op.report(key).state, protocol::OpState::kNotDone);
  EXPECT_EQ(op.report(key).finished, 40u);
  op.enter(State::kDone);
  EXPECT_EQ(op.report(key).state, protocol::OpState::kDone);
  EXPECT_EQ(op.report(key).finished, 100u);
}

TEST_F(OperationTest, BeginsAgainAfterItsKeptPart) {
  run();
  op.finished = 40;
  op.enter(State::kFrozen);
  EXPECT_FALSE(op.repeat_later(30, membership, true)) << "its tensor is restored";
  EXPECT_EQ(op.info.start, 30u);
  EXPECT_EQ(op.report(key).finished, 30u) << "the part stays kept until it begins again";
  ASSERT_EQ(op.parts.size(), 1u);
  EXPECT_EQ(op.parts[0].contributors.size(), 3u);
  op.begin(membership);
  EXPECT_EQ(op.finished, 30u);
}

TEST_F(OperationTest, APartOfTheSamePeersContinuesTheOneBefore) {
  op.add_part(30, membership);
  op.add_part(50, membership);
  ASSERT_EQ(op.parts.size(), 1u);
  EXPECT_EQ(op.parts[0].end, 50u);
  op.absent_ranks = protocol::AbsentRanks::of(1, 3);
  op.add_part(80, membership);
  ASSERT_EQ(op.parts.size(), 2u);
  EXPECT_EQ(op.parts[1].contributors, (std::vector<PeerId>{peer_id(1), peer_id(3)}));
}

TEST_F(OperationTest, WithoutRestoringAStartSpoilsWhatItOverwrites) {
  op.info.keep = false;
  run();
  EXPECT_TRUE(op.repeat_later(0, membership, false));
  EXPECT_FALSE(op.repeat_later(0, membership, false)) << "it was not started again";
  Operation broadcast;
  broadcast.info.kind = protocol::OpKind::kBroadcast;
  broadcast.begin(membership);
  broadcast.started = true;
  EXPECT_FALSE(broadcast.repeat_later(0, membership, false));
}

TEST_F(OperationTest, ASendCommitsWhenItsReceiverIsDone) {
  op.info = {};
  op.info.kind = protocol::OpKind::kSend;
  op.info.root = peer_id(2);
  op.info.receiver = peer_id(3);
  EXPECT_FALSE(op.may_commit(peer_id(2)));
  run();
  EXPECT_TRUE(op.sends(peer_id(2)) && op.receives(peer_id(3)));
  EXPECT_TRUE(op.may_commit(peer_id(2)));
  EXPECT_FALSE(op.may_commit(peer_id(3)));
}

}  // namespace
}  // namespace pccl::peer
