// Operations that members on wan paths agree on among themselves (PROTOCOL.md, section 3).

#include "csrc/peer/operations.h"
#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::OpKind;

TEST(OperationsAgreed, FarAwayItCommitsWhenAllSayThatItIsDone) {
  Transcript t;
  t.become_far_member();
  t.call(t.all_reduce(5));
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(0)}), "tell Done #0\nsay that #0 is done\n");
  EXPECT_EQ(t.on(OpAgreed{epoch_id(1), t.key(0)}), "end #0 committed\nfinish call 5: ok\n");
  EXPECT_EQ(t.on(OpAgreed{epoch_id(1), t.key(0)}), "") << "once";
  EXPECT_EQ(t.decide(1, 0, {t.committed(t.key(0))}), "");
  EXPECT_EQ(t.on(OpAgreed{epoch_id(1), t.key(0)}), "") << "it is over";
}

TEST(OperationsAgreed, AnAgreedOperationHasNoTimeoutAndIsReportedAsReturned) {
  Transcript t;
  t.become_far_member();
  t.call(t.all_reduce(5, "", std::chrono::milliseconds(1500)));
  t.on(OpTransferred{epoch_id(1), t.key(0)});
  t.on(OpAgreed{epoch_id(1), t.key(0)});
  EXPECT_EQ(t.wait(2), "");
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}}),
            "info: epoch 1.1 is ending: peer 1.3 lost\ntell StateReport, #0 returned\n");
  EXPECT_EQ(t.lose(1, 3, {t.key(0)}), "warn: epoch 1.1 ended: peer 1.3 lost\n");
}

// The last word may be a lie that comes after the report.
TEST(OperationsAgreed, NothingIsReturnedAfterTheStateReport) {
  Transcript t;
  t.become_far_member();
  t.call(t.all_reduce(5));
  t.on(OpTransferred{epoch_id(1), t.key(0)});
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}}),
            "info: epoch 1.1 is ending: peer 1.3 lost\ntell StateReport, #0 done\n");
  EXPECT_EQ(t.on(OpAgreed{epoch_id(1), t.key(0)}), "");
  EXPECT_EQ(t.lose(1, 3, {t.key(0)}),
            "warn: epoch 1.1 ended: peer 1.3 lost\nend #0 committed\nfinish call 5: ok\n");
}

TEST(OperationsAgreed, AnAgreedOperationCannotBeAborted) {
  const auto after = [](auto then) {
    Transcript t;
    t.become_far_member();
    t.call(t.all_reduce(5));
    t.on(OpTransferred{epoch_id(1), t.key(0)});
    t.on(OpAgreed{epoch_id(1), t.key(0)});
    return then(t);
  };
  EXPECT_NE(after([](Transcript& t) {
              return t.decide(1, 0, {t.aborted(t.key(0), Code::kOperationTimeout, "late")});
            }).find("verdict of #0 is to abort, but all members had reported that they are done"),
            std::string::npos);
  EXPECT_NE(
      after([](Transcript& t) {
        return t.lose(1, 3);
      }).find("the end of epoch 1.1 is not to commit (#0), but all members had reported that"),
      std::string::npos);
}

TEST(OperationsAgreed, OnlyWhatAllHaveCalledBeforeOneIsDoneIsAgreedOn) {
  Transcript t;
  t.become_far_member();
  t.call(t.kind(5, OpKind::kBroadcast, 0));
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(0)}), "tell Done #0\n");
  EXPECT_EQ(t.call(t.kind(6, OpKind::kBarrier)),
            "tell Begin #1 barrier(world size 3)\ntell Done #1\n");
  OpRequest empty = t.all_reduce(7);
  empty.count = 0;
  t.call(empty);
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(2)}), "tell Done #2\n");
}

TEST(OperationsAgreed, WhileManyWaitForTheirVerdictsNoneIsReturnedBeforeIt) {
  Transcript t;
  t.become_far_member();
  std::string last;
  for (uint32_t i = 0; i <= protocol::kOpsOpenMax / 2; ++i) {
    t.call(t.all_reduce(5 + i));
    t.on(OpTransferred{epoch_id(1), t.key(i)});
    last = t.on(OpAgreed{epoch_id(1), t.key(i)});
    EXPECT_EQ(last.empty(), i == protocol::kOpsOpenMax / 2) << i;
  }
  EXPECT_EQ(t.decide(1, 0, {t.committed(t.key(protocol::kOpsOpenMax / 2))}).substr(0, 3), "end");
}

class ProposedAborts : public testing::Test {
 protected:
  ProposedAborts() { t.become_far_member(); }
  std::string propose(uint32_t epoch, uint32_t sequence) {
    return t.hear(protocol::AbortProposal{epoch_id(epoch), t.key(sequence), Code::kOperationTimeout,
                                          "late on rank 0"});
  }
  std::string transferred(uint32_t sequence) {
    return t.on(OpTransferred{epoch_id(1), t.key(sequence)});
  }
  std::string agreed(uint32_t sequence) { return t.on(OpAgreed{epoch_id(1), t.key(sequence)}); }
  Transcript t;
};

TEST_F(ProposedAborts, AnAnswerHasTheStateOfTheOperation) {
  for (uint64_t handle : {5, 6, 7}) t.call(t.all_reduce(handle));
  transferred(1);
  transferred(2);
  agreed(2);
  EXPECT_EQ(propose(1, 0), "tell AbortAnswer #0 not done\n");
  EXPECT_EQ(propose(1, 0), "tell AbortAnswer #0 not done\n") << "after a reconnection";
  EXPECT_EQ(propose(1, 1), "tell AbortAnswer #1 done\n");
  EXPECT_EQ(propose(1, 2), "tell AbortAnswer #2 returned\n");
  EXPECT_EQ(propose(0, 0), "") << "of an older epoch";
  const std::string refused =
      t.hear(protocol::AbortProposal{epoch_id(1), t.key(0), Code::kOk, "no reason"});
  EXPECT_NE(refused.find("AbortProposal without a reason"), std::string::npos) << refused;
}

TEST_F(ProposedAborts, AnOperationThatWasNotDoneNeverBecomesDone) {
  t.call(t.all_reduce(5));
  propose(1, 0);
  EXPECT_EQ(transferred(0), "");
  EXPECT_EQ(agreed(0), "");
}

TEST_F(ProposedAborts, AnOperationThatWasDoneIsNotReturnedBeforeTheVerdict) {
  t.call(t.all_reduce(5));
  transferred(0);
  propose(1, 0);
  EXPECT_EQ(agreed(0), "");
  EXPECT_NE(t.decide(1, 0, {t.committed(t.key(0))}), "");
}

// By its timeout: the request tells the master the same.
TEST_F(ProposedAborts, AnOperationWithARequestIsNotReturnedBeforeTheVerdict) {
  OpRequest request = t.all_reduce(5);
  request.timeout = std::chrono::seconds(1);
  t.call(request);
  transferred(0);
  EXPECT_NE(t.wait(1.5).find("tell AbortRequest #0"), std::string::npos);
  EXPECT_EQ(agreed(0), "");
}

TEST_F(ProposedAborts, AnOperationThatIsCalledLaterNeverStarts) {
  EXPECT_EQ(propose(1, 0), "tell AbortAnswer #0 not done\n");
  const std::string called = t.call(t.all_reduce(5));
  EXPECT_NE(called.find("tell Begin #0"), std::string::npos) << called;
  EXPECT_EQ(called.find("start"), std::string::npos) << called;
  EXPECT_NE(t.decide(1, 0, {t.aborted(t.key(0), Code::kOperationTimeout, "late")}), "");
}

}  // namespace
}  // namespace pccl::peer
