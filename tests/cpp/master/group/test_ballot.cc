#include "master/group/ballot.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::Answer;
using protocol::JointKind;
using protocol::Vote;

constexpr auto kUpdate = JointKind::kUpdateTopology;

Answer answer(Code code = Code::kOk) {
  Answer answer;
  answer.code = code;
  return answer;
}

class BallotTest : public testing::Test {
 protected:
  Ballot::Cast cast(PeerId voter, uint32_t number, JointKind kind) {
    Result<Ballot::Cast> cast = ballot.cast(voter, Vote{number, kind, {}, {}});
    EXPECT_TRUE(cast.ok()) << cast.status().message;
    return cast.ok() ? cast.value() : Ballot::Cast::kRefused;
  }
  bool forbidden(PeerId voter, uint32_t number, JointKind kind) {
    Result<Ballot::Cast> cast = ballot.cast(voter, Vote{number, kind, {}, {}});
    return !cast.ok() && cast.status().code == Code::kProtocol;
  }
  Ballot ballot{{kA, kB, kC}};
};

TEST_F(BallotTest, IsCompleteWhenAllHaveVoted) {
  EXPECT_FALSE(ballot.kind().has_value());
  EXPECT_EQ(cast(kB, 0, kUpdate), Ballot::Cast::kCounted);
  EXPECT_EQ(ballot.kind(), kUpdate);
  EXPECT_EQ(ballot.missing(), (std::vector<uint32_t>{0, 2}));
  EXPECT_TRUE(ballot.is_open(kB, 0));
  EXPECT_TRUE(ballot.is_open(kB, kUpdate));
  EXPECT_FALSE(ballot.is_open(kA, kUpdate));
  cast(kA, 0, kUpdate);
  EXPECT_FALSE(ballot.is_complete(kUpdate));
  cast(kC, 0, kUpdate);
  EXPECT_TRUE(ballot.is_complete(kUpdate));
  EXPECT_FALSE(ballot.is_complete(kSync));
  const auto answers = ballot.settle(answer());
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[1].first, kB);
  EXPECT_EQ(answers[1].second.kind, kUpdate);
  EXPECT_FALSE(ballot.is_complete());
  EXPECT_EQ(cast(kA, 1, kPending), Ballot::Cast::kCounted);
}

TEST_F(BallotTest, ALostVoterIsNotAwaited) {
  cast(kA, 0, kUpdate);
  cast(kC, 0, kUpdate);
  ballot.lose(kB);
  EXPECT_TRUE(ballot.is_complete());
  EXPECT_EQ(ballot.settle(answer()).size(), 2u);
  cast(kA, 1, kUpdate);
  EXPECT_EQ(ballot.missing(), (std::vector<uint32_t>{2})) << "ranks do not shift";
}

TEST_F(BallotTest, DifferentKindsAreNamedTheRarerFirst) {
  cast(kA, 0, kPending);
  cast(kC, 0, kPending);
  EXPECT_EQ(cast(kB, 0, kSync), Ballot::Cast::kDiffers);
  EXPECT_EQ(ballot.mismatch(),
            "ranks made different joint calls: rank 1 called sync_shared_state; "
            "ranks 0 and 2 called are_peers_pending. "
            "All ranks must make the same joint calls in the same order");
  const auto answers = ballot.settle(answer(Code::kMismatch));
  EXPECT_EQ(answers[1].second.kind, kSync) << "each is told of its own call";
  EXPECT_EQ(answers[0].second.kind, kPending);
}

TEST_F(BallotTest, ANumberThatWasSettledIsAnsweredAlikeLater) {
  cast(kA, 0, kUpdate);
  ballot.settle(answer(Code::kOperationTimeout));
  cast(kA, 1, kUpdate);
  EXPECT_EQ(cast(kB, 0, kSync), Ballot::Cast::kAnswered);
  ASSERT_NE(ballot.last_answer(kB), nullptr);
  EXPECT_EQ(ballot.last_answer(kB)->code, Code::kOperationTimeout);
  EXPECT_EQ(ballot.last_answer(kB)->kind, kSync);
  EXPECT_EQ(cast(kB, 1, kUpdate), Ballot::Cast::kCounted) << "the next number is an open one";
  EXPECT_EQ(cast(kC, 0, kUpdate), Ballot::Cast::kAnswered);
  cast(kC, 1, kUpdate);
  EXPECT_TRUE(ballot.is_complete());
}

TEST_F(BallotTest, VotesRepeatedAfterAReconnectionCountOnce) {
  cast(kA, 0, kUpdate);
  EXPECT_EQ(cast(kA, 0, kUpdate), Ballot::Cast::kRepeated);
  ballot.settle(answer());
  EXPECT_EQ(cast(kA, 0, kUpdate), Ballot::Cast::kRepeated);
  EXPECT_EQ(cast(kA, 1, kUpdate), Ballot::Cast::kCounted);
}

TEST_F(BallotTest, NumbersComeOneAfterAnother) {
  EXPECT_TRUE(forbidden(kA, 1, kUpdate));
  cast(kA, 0, kUpdate);
  EXPECT_TRUE(forbidden(kA, 1, kUpdate)) << "its vote is still open";
  ballot.settle(answer());
  EXPECT_TRUE(forbidden(kA, 2, kUpdate));
  cast(kA, 1, kUpdate);
}

TEST_F(BallotTest, InABrokenGroupNumbersNeedNotMatch) {
  cast(kA, 0, kSync);
  ballot.settle(answer(Code::kOperationTimeout));
  cast(kA, 1, kUpdate);
  ballot.lose(kC);
  ballot.break_up();
  EXPECT_EQ(cast(kB, 0, kUpdate), Ballot::Cast::kCounted) << "not the answer of number 0";
  EXPECT_TRUE(ballot.is_complete(kUpdate));
  const auto answers = ballot.settle(answer());
  EXPECT_EQ(answers[0].second.number, 1u);
  EXPECT_EQ(answers[1].second.number, 0u);
}

TEST_F(BallotTest, InABrokenGroupOnlyUpdateTopologyIsCalled) {
  ballot.break_up();
  const Vote vote{0, kPending, {}, {}};
  EXPECT_EQ(cast(kA, 0, kPending), Ballot::Cast::kRefused);
  EXPECT_FALSE(ballot.kind().has_value());
  const Answer refused = ballot.refuse(kA, vote, {Code::kPeerLost, "peer 1.3 lost", {}});
  EXPECT_EQ(refused.code, Code::kPeerLost);
  EXPECT_EQ(refused.kind, kPending);
  EXPECT_EQ(refused, *ballot.last_answer(kA));
  EXPECT_EQ(cast(kA, 1, kUpdate), Ballot::Cast::kCounted);
}

TEST_F(BallotTest, InABrokenGroupASyncThatAllHaveVotedForGoesOn) {
  ballot.lose(kC);
  ballot.break_up(0);
  EXPECT_EQ(cast(kA, 0, kSync), Ballot::Cast::kCounted);
  EXPECT_FALSE(ballot.is_complete(kSync));
  EXPECT_EQ(ballot.settle(answer(Code::kOperationTimeout)).size(), 1u);
  EXPECT_EQ(cast(kB, 0, kSync), Ballot::Cast::kAnswered) << "with the same answer";
  EXPECT_EQ(ballot.last_answer(kB)->code, Code::kOperationTimeout);
  EXPECT_EQ(cast(kA, 1, kSync), Ballot::Cast::kRefused) << "that is another call";
}

// After a restart a member reports its number, and may lie.
TEST_F(BallotTest, TheLastNumberIsNeverUsed) {
  ballot.restore(kA, UINT32_MAX, std::nullopt);
  EXPECT_TRUE(forbidden(kA, UINT32_MAX, kUpdate)) << "its next one would be 0 again";
  ballot.check();
}

}  // namespace
}  // namespace pccl::master
