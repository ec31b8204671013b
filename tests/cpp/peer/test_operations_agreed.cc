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

TEST(OperationsAgreed, AWithheldOperationIsNeverDone) {
  Transcript t;
  t.become_far_member();
  t.call(t.all_reduce(5));
  t.call(t.all_reduce(6));
  t.on(OpTransferred{epoch_id(1), t.key(1)});
  const auto on_abort_proposal = [&](uint32_t epoch, uint32_t sequence) {
    return t.hear(protocol::AbortProposal{epoch_id(epoch), t.key(sequence), Code::kOperationTimeout,
                                          "late on rank 0"});
  };
  EXPECT_EQ(on_abort_proposal(1, 1), "") << "it has said that it is done";
  EXPECT_EQ(on_abort_proposal(1, 2), "") << "it was settled meanwhile, or never called";
  EXPECT_EQ(on_abort_proposal(0, 0), "") << "of an older epoch";
  EXPECT_EQ(on_abort_proposal(1, 0), "tell AbortRequest #0, operation timeout: late on rank 0\n");
  EXPECT_EQ(on_abort_proposal(1, 0), "") << "once";
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(0)}), "");
  const std::string refused =
      t.hear(protocol::AbortProposal{epoch_id(1), t.key(0), Code::kOk, "no reason"});
  EXPECT_NE(refused.find("AbortProposal without a reason"), std::string::npos) << refused;
}

}  // namespace
}  // namespace pccl::peer
