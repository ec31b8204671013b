#include "master/epochs/operations.h"

#include <gtest/gtest.h>

#include "master/epochs/operation_waits.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::OpInfo;
using protocol::Outcome;

class OperationsTest : public testing::Test {
 protected:
  void begin(PeerId peer, uint32_t sequence, uint64_t count = 8) {
    EXPECT_TRUE(table.begin(peer, op(sequence), all_reduce(count)).ok());
  }
  // The only verdict since the last call.
  protocol::Verdict verdict() {
    const auto settled = table.take_settled({});
    EXPECT_EQ(settled.size(), 1u);
    return settled.empty() ? protocol::Verdict{} : settled[0];
  }
  Operations table{epoch(5), {kA, kB, kC}};
};

TEST_F(OperationsTest, CommitsWhenTheLastMemberIsDone) {
  for (const PeerId peer : {kA, kB, kC}) begin(peer, 0);
  EXPECT_TRUE(table.done(kA, op(0)).ok());
  EXPECT_TRUE(table.done(kA, op(0)).ok()) << "said again after a reconnection";
  EXPECT_TRUE(table.done(kB, op(0)).ok());
  EXPECT_TRUE(table.take_settled({}).empty());
  EXPECT_FALSE(table.drained());
  EXPECT_TRUE(table.done(kC, op(0)).ok());
  protocol::Verdict expected{op(0), Outcome::kCommitted, Code::kOk, ""};
  expected.last = 2;
  EXPECT_EQ(verdict(), expected);
  EXPECT_TRUE(table.drained());
}

TEST_F(OperationsTest, AVerdictNamesTheLastCallerAndTheTimeSinceThen) {
  const auto at = [](int ms) { return Instant{std::chrono::milliseconds(ms)}; };
  for (const auto& [peer, ms] : {std::pair{kA, 10}, {kC, 20}, {kB, 50}})
    EXPECT_TRUE(table.begin(peer, op(0), all_reduce(8), {}, at(ms)).ok());
  for (const PeerId peer : {kA, kB, kC}) EXPECT_TRUE(table.done(peer, op(0)).ok());
  const auto settled = table.take_settled(at(53));
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(settled[0].last, 1u);
  EXPECT_EQ(settled[0].last_us, 3000u);
  const auto endings = table.take_endings();
  ASSERT_EQ(endings.size(), 1u);
  EXPECT_TRUE(endings[0].committed);
  ASSERT_TRUE(endings[0].begins);
  EXPECT_EQ(endings[0].begins->last, kB);
  EXPECT_EQ(endings[0].begins->first_at, at(10));
  EXPECT_EQ(endings[0].begins->before_last_at, at(20));
  EXPECT_EQ(endings[0].begins->last_at, at(50));
}

TEST_F(OperationsTest, AVerdictNamesTheLowestRankThatHasNotCalled) {
  begin(kA, 0);
  EXPECT_TRUE(table.abort(kA, {epoch(5), op(0), Code::kOperationTimeout, "(#0) timed out"}).ok());
  const protocol::Verdict what = verdict();
  EXPECT_EQ(what.last, 1u);
  EXPECT_EQ(what.last_us, 0u);
  const auto endings = table.take_endings();
  ASSERT_EQ(endings.size(), 1u);
  EXPECT_FALSE(endings[0].committed || endings[0].begins);
}

TEST_F(OperationsTest, TheSecondDescriptionThatDiffersEndsIt) {
  begin(kA, 12, 8);
  begin(kB, 12, 8);
  EXPECT_TRUE(table.begin(kC, op(12), all_reduce(7)).ok());
  const auto what = verdict();
  EXPECT_EQ(what.code, Code::kMismatch);
  EXPECT_EQ(what.text,
            "ranks disagree on (#12) in epoch 1.5: "
            "rank 2 called all_reduce(sum, float32, 7 elements, world size 2); "
            "ranks 0 and 1 called all_reduce(sum, float32, 8 elements, world size 2). "
            "All ranks must make the same calls, in the same order under one tag");
}

TEST_F(OperationsTest, ALateBeginOfWhatIsSettledIsNoNewOperation) {
  begin(kA, 0, 8);
  begin(kB, 0, 7);
  EXPECT_EQ(verdict().code, Code::kMismatch);
  EXPECT_TRUE(table.done(kA, op(0)).ok()) << "it has crossed the verdict";
  begin(kC, 0, 8);
  EXPECT_TRUE(table.drained());
  EXPECT_TRUE(table.take_settled({}).empty());
  // All members have begun it now, so its number is forgotten.
  EXPECT_TRUE(table.done(kC, op(0)).ok());
  EXPECT_TRUE(table.abort(kC, {epoch(5), op(0), Code::kOperationTimeout, ""}).ok());
  EXPECT_TRUE(table.take_settled({}).empty());
}

TEST_F(OperationsTest, GivingUpNamesWhoIsMissing) {
  begin(kA, 0);
  begin(kB, 0);
  EXPECT_TRUE(table.done(kB, op(0)).ok());
  EXPECT_TRUE(table.abort(kA, {epoch(5), op(0), Code::kOperationTimeout, "(#0) timed out"}).ok());
  EXPECT_TRUE(table.take_proposals().empty());
  const auto what = verdict();
  EXPECT_EQ(what.code, Code::kOperationTimeout);
  EXPECT_EQ(what.text, "(#0) timed out; it waited for rank 2");
  EXPECT_TRUE(table.abort(kB, {epoch(5), op(0), Code::kOperationTimeout, ""}).ok()) << "too late";
  EXPECT_TRUE(table.take_settled({}).empty());
}

TEST_F(OperationsTest, AWrongCallHasWaitedForNobody) {
  begin(kA, 0);
  begin(kB, 0);
  EXPECT_TRUE(table.abort(kA, {epoch(5), op(0), Code::kInvalidArgument, "too coarse"}).ok());
  const protocol::Verdict what = verdict();
  EXPECT_EQ(what.code, Code::kInvalidArgument);
  EXPECT_EQ(what.text, "too coarse");
}

TEST_F(OperationsTest, NoAbortIsProposedForCallsThatMayEndBeforeAllHaveMadeThem) {
  begin(kA, 0, 0);  // no elements
  EXPECT_TRUE(table.done(kA, op(0)).ok());
  EXPECT_TRUE(table.abort(kA, {epoch(5), op(0), Code::kOperationTimeout, "(#0) timed out"}).ok());
  EXPECT_TRUE(table.take_proposals().empty());
  EXPECT_EQ(verdict().code, Code::kOperationTimeout);
}

TEST_F(OperationsTest, DrainingEndsWhatSomebodyHasNotBegun) {
  for (const PeerId peer : {kA, kB, kC}) begin(peer, 0);
  begin(kA, 1);
  begin(kB, 1);
  table.drain();
  const auto what = verdict();
  EXPECT_EQ(what.op, op(1));
  EXPECT_EQ(what.code, Code::kMembershipChanged);
  EXPECT_TRUE(contains(what.text, "rank 2 had not called it")) << what.text;
  EXPECT_FALSE(table.drained());
  EXPECT_TRUE(contains(table.waits().in_flight(), "1 operation is in flight"))
      << table.waits().in_flight();
  for (const PeerId peer : {kA, kB, kC}) EXPECT_TRUE(table.done(peer, op(0)).ok());
  EXPECT_TRUE(table.drained());
  EXPECT_EQ(table.waits().in_flight(), "");
}

TEST_F(OperationsTest, ATransferConcernsTwoAndItsReceiverDecides) {
  EXPECT_TRUE(table.begin(kA, op(0), transfer(kA, kC)).ok());
  EXPECT_TRUE(table.begin(kC, op(0), transfer(kA, kC)).ok());
  EXPECT_EQ(table.concerned(op(0), {kA, kB, kC}), std::vector{kC});
  EXPECT_EQ(table.concerned(op(0), {kA, kB}), std::vector<PeerId>{}) << "the receiver is lost";
  EXPECT_EQ(table.concerned(op(9), {kA, kB}), (std::vector{kA, kB})) << "any other";
  EXPECT_TRUE(table.done(kA, op(0)).ok());
  EXPECT_FALSE(table.drained());
  EXPECT_TRUE(table.done(kC, op(0)).ok());
  EXPECT_TRUE(table.drained());
  const auto committed = verdict();
  EXPECT_EQ(committed.outcome, Outcome::kCommitted);
  EXPECT_EQ(committed.sender, kA);
  EXPECT_EQ(committed.receiver, kC);
  // One side only: after a timeout it is settled like any other operation, and the text names both.
  EXPECT_TRUE(table.begin(kC, op(1), transfer(kA, kC)).ok());
  EXPECT_TRUE(table.abort(kC, {epoch(5), op(1), Code::kOperationTimeout, "late"}).ok());
  EXPECT_EQ(verdict().text, "late; it waited for rank 0");
  EXPECT_TRUE(table.begin(kA, op(1), transfer(kA, kC)).ok());
  EXPECT_TRUE(table.drained());
}

TEST_F(OperationsTest, TransfersThatDifferFailOnBothSides) {
  EXPECT_TRUE(table.begin(kA, op(0), transfer(kA, kC, 4)).ok());
  EXPECT_TRUE(table.begin(kC, op(0), transfer(kA, kC, 5)).ok());
  EXPECT_EQ(verdict().code, Code::kMismatch);
}

// A member makes the master keep 4 MiB at most.
TEST_F(OperationsTest, BoundsWhatAMemberMakesItKeep) {
  OpInfo info = all_reduce(0);
  info.kind = protocol::OpKind::kAllToAll;
  info.sends = info.receives = std::vector<uint64_t>(protocol::kMembersMax, 1);
  const size_t most = protocol::kCarriedBytesMax / carried_bytes(info);
  uint32_t next = 0;
  for (; next < most; ++next) ASSERT_TRUE(table.begin(kA, op(next), info).ok()) << next;
  const Status refused = table.check_begin(kA, op(next), info);
  EXPECT_EQ(refused.code, Code::kProtocol);
  EXPECT_TRUE(contains(refused.message, "bytes of tags, part sizes and call sites in flight"));
  EXPECT_TRUE(table.check_begin(kB, op(next), info).ok());
  begin(kB, 0);  // it differs, so the operation is settled
  EXPECT_EQ(verdict().code, Code::kMismatch);
  EXPECT_TRUE(table.begin(kA, op(next), info).ok());
  table.check();
}

TEST_F(OperationsTest, RefusesWhatMakesNoSense) {
  begin(kA, 0);
  const auto forbids = [](const Status& status) { return status.code == Code::kProtocol; };
  EXPECT_TRUE(forbids(table.begin(kA, op(0), all_reduce(8)))) << "twice";
  EXPECT_TRUE(forbids(table.done(kB, op(0)))) << "done before begun";
  EXPECT_TRUE(forbids(table.abort(kB, {epoch(5), op(0), Code::kSystem, ""}))) << "not begun";
  EXPECT_TRUE(forbids(table.abort(kA, {epoch(5), op(0), Code::kOk, ""}))) << "no reason";
  EXPECT_TRUE(forbids(table.begin(kB, op(1), transfer(kA, kC)))) << "between two others";
  EXPECT_TRUE(forbids(table.begin(kB, op(1), transfer(kB, kB)))) << "to itself";
  EXPECT_TRUE(forbids(table.begin(kB, op(1), transfer(kB, {9})))) << "to a stranger";
  OpInfo receive = transfer(kA, kB);
  receive.kind = protocol::OpKind::kRecv;
  EXPECT_TRUE(forbids(table.begin(kB, op(1), receive))) << "both sides describe a send";
}

TEST_F(OperationsTest, BoundsWhatOnePeerCanMakeItRemember) {
  const uint32_t max = protocol::kOpsBegunMax;
  for (uint32_t i = 0; i < max; ++i) {
    ASSERT_TRUE(table.begin(kA, op(i), all_reduce(1)).ok());
    ASSERT_TRUE(table.abort(kA, {epoch(5), op(i), Code::kSystem, "x"}).ok());
  }
  const Status refused = table.begin(kA, op(max), all_reduce(1));
  EXPECT_EQ(refused.code, Code::kKicked);
  EXPECT_TRUE(contains(refused.message, std::to_string(max) + " operations that not all"));
  EXPECT_TRUE(table.begin(kB, op(1), all_reduce(1)).ok());
  // All have begun it, so it is forgotten.
  EXPECT_TRUE(table.begin(kC, op(1), all_reduce(1)).ok());
  EXPECT_TRUE(table.begin(kA, op(max), all_reduce(1)).ok());
}

TEST_F(OperationsTest, BoundsWhatOnePeerCanHaveOpen) {
  const uint32_t max = protocol::kOpsOpenMax;
  for (uint32_t i = 0; i < max; ++i) ASSERT_TRUE(table.begin(kA, op(i), all_reduce(1)).ok());
  const Status refused = table.begin(kA, op(max), all_reduce(1));
  EXPECT_EQ(refused.code, Code::kKicked);
  EXPECT_TRUE(contains(refused.message, std::to_string(max) + " operations open"));
  EXPECT_TRUE(table.begin(kB, op(max), all_reduce(1)).ok());
  ASSERT_TRUE(table.abort(kA, {epoch(5), op(0), Code::kSystem, "x"}).ok());
  EXPECT_EQ(verdict().code, Code::kSystem);
  EXPECT_TRUE(table.begin(kA, op(max), all_reduce(1)).ok());
  table.check();
}

TEST_F(OperationsTest, ABeginThatWasLostCountsWhenItsMemberResumes) {
  begin(kA, 0);
  begin(kB, 0);
  EXPECT_TRUE(table.abort(kA, {epoch(5), op(0), Code::kOperationTimeout, "late"}).ok());
  verdict();
  table.catch_up(kC, {{op(0), {}, {}}});
  EXPECT_TRUE(table.knows(op(0))) << "c says that it has yet to call it";
  table.catch_up(kC, {});
  EXPECT_FALSE(table.knows(op(0)));
  begin(kA, 1);
  table.catch_up(kC, {});
  EXPECT_FALSE(table.has_begun(kC, op(1))) << "an open operation";
}

TEST_F(OperationsTest, ReportsOfSettledOperationsDoNotTrapARestartedMaster) {
  table.restore_settled({op(4), {}, {}}, {kC});
  table.check();
  EXPECT_EQ(table.open_count(), 0u);
  begin(kC, 4);
  EXPECT_FALSE(table.knows(op(4))) << "all have begun it";
  table.restore_settled({op(5), {}, {}}, {kC});
  begin(kA, 5);
  EXPECT_EQ(table.open_count(), 1u) << "c was wrong: it is a new operation";
  begin(kC, 5);
  EXPECT_TRUE(table.knows(op(5)));
  table.restore_settled({op(6), kA, PeerId{77}}, {kC});
  EXPECT_FALSE(table.knows(op(6))) << "a send between others";
  table.restore_settled({op(6), kA, kA}, {kC});
  EXPECT_FALSE(table.knows(op(6))) << "a send to itself";
  table.check();
}

TEST_F(OperationsTest, ASettledOperationOutlivesAReconfigurationUntilAllHaveCalledIt) {
  for (const PeerId peer : {kA, kB, kC}) begin(peer, 0);  // in flight, so it begins again
  begin(kA, 1);
  EXPECT_TRUE(table.abort(kA, {epoch(5), op(1), Code::kOperationTimeout, "late"}).ok());
  table.take_settled({});
  table = table.reconfigured(epoch(6), {kC, kA});  // kB is lost, so ranks shift
  EXPECT_TRUE(table.drained());
  EXPECT_TRUE(table.has_begun(kA, op(1)));
  EXPECT_FALSE(table.has_begun(kA, op(0)));
  EXPECT_TRUE(table.begin(kC, op(1), all_reduce(8)).ok());  // late; kC knows the verdict
  EXPECT_TRUE(table.drained());
  EXPECT_FALSE(table.has_begun(kA, op(1))) << "all have heard: forgotten";
  EXPECT_TRUE(table.take_settled({}).empty());
}

// ---- Members that leave ----

TEST_F(OperationsTest, ALeaveAbortsWithWhatTheLeaverIsNotDone) {
  begin(kA, 0);
  begin(kB, 1);
  table.leave(kA);
  const auto settled = table.take_settled({});
  ASSERT_EQ(settled.size(), 2u);
  EXPECT_EQ(settled[0].code, Code::kPeerLost);
  EXPECT_EQ(settled[0].text,
            "all_reduce(sum, float32, 8 elements, world size 2) (#0) in epoch 1.5 cannot complete: "
            "rank 0 has left the group (destroy_process_group). update_topology continues without "
            "it");
  EXPECT_EQ(settled[1].op, op(1)) << "which the leaver has not called";
  table.check();
}

TEST_F(OperationsTest, AnOperationWithWhichTheLeaverIsDoneGoesOn) {
  for (const PeerId peer : {kA, kB, kC}) begin(peer, 0);
  EXPECT_TRUE(table.done(kA, op(0)).ok());
  table.leave(kA);
  EXPECT_TRUE(table.take_settled({}).empty());
  EXPECT_TRUE(table.needs(kA));
  EXPECT_TRUE(table.done(kB, op(0)).ok());
  EXPECT_TRUE(table.done(kC, op(0)).ok());
  EXPECT_EQ(verdict().outcome, Outcome::kCommitted);
  EXPECT_FALSE(table.needs(kA));
  table.check();
}

TEST_F(OperationsTest, AnOperationThatNeedsDataOfTheLeaverFailsWhenTheDataMayBeLost) {
  EXPECT_TRUE(table.begin(kA, op(0), transfer(kA, kC)).ok());
  EXPECT_TRUE(table.done(kA, op(0)).ok());
  EXPECT_TRUE(table.begin(kB, op(0, "s"), transfer(kB, kC)).ok());
  table.leave(kA);
  table.abort_all_with(kA);
  EXPECT_EQ(verdict().op, op(0)) << "and not the send between two others";
  EXPECT_FALSE(table.needs(kA));
}

TEST_F(OperationsTest, ALaterCallFailsWhenTheFirstMemberMakesItAndIsForgottenAfterTheLast) {
  table.leave(kA);
  begin(kB, 0);
  EXPECT_EQ(verdict().code, Code::kPeerLost);
  EXPECT_EQ(table.known_count(), 1u);
  begin(kC, 0);
  EXPECT_TRUE(table.take_settled({}).empty());
  EXPECT_EQ(table.known_count(), 0u);
  table.check();
}

TEST_F(OperationsTest, SendsGoOnBetweenOthersAndFailToAndFromTheLeaver) {
  table.leave(kA);
  EXPECT_TRUE(table.begin(kB, op(0, "bc"), transfer(kB, kC)).ok());
  EXPECT_TRUE(table.begin(kC, op(0, "bc"), transfer(kB, kC)).ok());
  EXPECT_TRUE(table.done(kC, op(0, "bc")).ok());
  EXPECT_EQ(verdict().outcome, Outcome::kCommitted);
  EXPECT_TRUE(table.begin(kB, op(0, "ba"), transfer(kB, kA)).ok());
  EXPECT_EQ(verdict().code, Code::kPeerLost);
  EXPECT_TRUE(table.begin(kC, op(0, "ac"), transfer(kA, kC)).ok());
  EXPECT_EQ(verdict().code, Code::kPeerLost);
  EXPECT_EQ(table.known_count(), 0u);
}

TEST_F(OperationsTest, TheSendOfALeaverCanStillBeReceived) {
  EXPECT_TRUE(table.begin(kA, op(0), transfer(kA, kB)).ok());
  EXPECT_TRUE(table.done(kA, op(0)).ok());
  table.leave(kA);
  EXPECT_TRUE(table.begin(kB, op(0), transfer(kA, kB)).ok());
  EXPECT_TRUE(table.done(kB, op(0)).ok());
  EXPECT_EQ(verdict().outcome, Outcome::kCommitted);
}

TEST_F(OperationsTest, TheLastMemberLearnsThatNoSendCanCome) {
  EXPECT_TRUE(table.await_send(kC, {epoch(5), "t", 1}).ok());
  table.leave(kA);
  EXPECT_TRUE(table.take_answers().empty()) << "rank 1 can still send";
  table.leave(kB);
  auto answers = table.take_answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].first, kC);
  EXPECT_EQ(answers[0].second, (protocol::SendBegun{epoch(5), {}, "t", 0}));
  EXPECT_TRUE(table.await_send(kC, {epoch(5), "t", 1}).ok());
  EXPECT_EQ(table.take_answers().size(), 1u) << "one that asks later, too";
}

TEST_F(OperationsTest, AClosedRankIsWaitedForNoMore) {
  begin(kA, 0);
  for (const PeerId peer : {kA, kB}) begin(peer, 1);
  table.close_posting(kB);
  const auto closed = verdict();
  EXPECT_EQ(closed.op, op(0)) << "it has called the other one before";
  EXPECT_EQ(closed.code, Code::kMembershipChanged);
  begin(kA, 2);
  EXPECT_EQ(verdict().op, op(2)) << "nor for calls that come later";
  table.check();
  table.open_posting();
  begin(kA, 3);
  EXPECT_TRUE(table.take_settled({}).empty());
}

}  // namespace
}  // namespace pccl::master
