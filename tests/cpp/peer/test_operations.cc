#include "csrc/peer/operations.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::JointKind;
using protocol::OpKind;

const std::string kReduce = "all_reduce(sum, float32, 8 elements, world size 3)";
const std::string kRestart = "; call pccl.update_topology() and repeat\n";

// The key of the first transfer between these two peers under the default tag.
OpKey transfer(uint32_t sender, uint32_t receiver) {
  protocol::OpInfo info;
  info.kind = OpKind::kSend;
  info.root = peer_id(sender);
  info.receiver = peer_id(receiver);
  return {tag_of(info), 0};
}

TEST(Operations, CommitsWhenAllAreDone) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.call(t.all_reduce(5)),
            "tell Begin #0 " + kReduce + "\nstart call 5 as #0: 1 of 3, from 1.1, to 1.3\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(0)}), "tell Done #0\n");
  EXPECT_EQ(t.decide(1, 0, {t.committed(t.key(0))}), "end #0 committed\nfinish call 5: ok\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}), "");
}

TEST(Operations, AVerdictNamesTheLastCaller) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.on(OpTransferred{epoch_id(1), t.key(0)});
  protocol::Verdict verdict = t.committed(t.key(0));
  verdict.last = 2;
  verdict.last_us = 1500;
  t.decide(1, 0, {verdict});
  EXPECT_EQ(t.judged().handle, 5u);
  EXPECT_EQ(t.judged().last, peer_id(3));
  EXPECT_EQ(t.judged().ago, std::chrono::microseconds(1500));
}

TEST(Operations, AVerdictMustNameAMember) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.on(OpTransferred{epoch_id(1), t.key(0)});
  protocol::Verdict verdict = t.committed(t.key(0));
  verdict.last = 3;
  EXPECT_NE(t.decide(1, 0, {verdict}).find("names a rank"), std::string::npos);
}

TEST(Operations, TagsCountByThemselves) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  EXPECT_EQ(t.call(t.all_reduce(6, "a")).substr(0, 15), "tell Begin a#0 ");
  EXPECT_EQ(t.call(t.all_reduce(7, "a")).substr(0, 15), "tell Begin a#1 ");
  EXPECT_EQ(t.call(t.all_reduce(8)).substr(0, 14), "tell Begin #1 ");
}

TEST(Operations, ABarrierIsDoneWhenItBegins) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.call(t.kind(5, OpKind::kBarrier)),
            "tell Begin #0 barrier(world size 3)\ntell Done #0\n");
  EXPECT_EQ(t.decide(1, 0, {t.committed(t.key(0))}), "finish call 5: ok\n");
}

TEST(Operations, AReceiveReturnsAtOnceAndASendWithTheVerdict) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.call(t.kind(5, OpKind::kSend, 2)),
            "tell Begin ?#0 send(float32, 8 elements, from peer 1.2 to peer 1.3, world size 3)\n"
            "start call 5 as ?#0: 0 of 2, to 1.3\n");
  EXPECT_EQ(t.call(t.kind(6, OpKind::kRecv, 2)),
            "tell Begin ?#0 send(float32, 8 elements, from peer 1.3 to peer 1.2, world size 3)\n"
            "start call 6 as ?#0: 1 of 2, from 1.3\n");
  const OpKey sent = transfer(2, 3), received = transfer(3, 2);
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), received}),
            "tell Done ?#0\nend ?#0 committed\nfinish call 6: ok, from rank 2\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), sent}), "");
  EXPECT_EQ(t.decide(1, 0, {t.committed(sent)}), "end ?#0 committed\nfinish call 5: ok\n");
  EXPECT_EQ(t.decide(1, 1, {t.committed(received)}), "");
}

TEST(Operations, ASendMayHearOfItsCommitBeforeItsOwnRing) {
  Transcript t;
  t.become_member();
  t.call(t.kind(5, OpKind::kSend, 2));
  EXPECT_EQ(t.decide(1, 0, {t.committed(transfer(2, 3))}), "end ?#0 committed\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), transfer(2, 3)}), "");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), transfer(2, 3)}), "finish call 5: ok\n");
}

TEST(Operations, ATransferThatIsAbortedFails) {
  Transcript t;
  t.become_member();
  t.call(t.kind(5, OpKind::kSend, 2));
  t.call(t.kind(6, OpKind::kRecv, 2));
  const auto late = [&](OpKey op) { return t.aborted(op, Code::kOperationTimeout, "late"); };
  EXPECT_EQ(t.decide(1, 0, {late(transfer(2, 3))}), "end ?#0 aborted\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), transfer(2, 3)}),
            "finish call 5: operation timeout: late\n");
  // The received data was returned already, so the sender's timeout does not matter here.
  t.on(OpTransferred{epoch_id(1), transfer(3, 2)});
  EXPECT_EQ(t.decide(1, 1, {late(transfer(3, 2))}), "");
}

TEST(Operations, TransfersBetweenOthersAreTheirs) {
  Transcript t;
  t.become_member();
  protocol::Verdict verdict = t.committed(transfer(1, 3));
  verdict.sender = peer_id(1), verdict.receiver = peer_id(3);
  EXPECT_EQ(t.decide(1, 0, {verdict}), "");
}

TEST(Operations, ALossOfTheSenderLeavesWhatWasReceived) {
  Transcript t;
  t.become_member();
  t.call(t.kind(6, OpKind::kRecv, 2));
  t.on(OpTransferred{epoch_id(1), transfer(3, 2)});
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}}),
            "info: epoch 1.1 is ending: peer 1.3 lost\ntell StateReport, ?#0 done\n");
  EXPECT_EQ(t.lose(1, 3, {transfer(3, 2)}), "warn: epoch 1.1 ended: peer 1.3 lost\n");
}

TEST(Operations, ReceivedDataStaysWhenEverythingContinues) {
  Transcript t;
  t.become_member();
  t.call(t.kind(6, OpKind::kRecv, 2));
  t.on(OpTransferred{epoch_id(1), transfer(3, 2)});
  EXPECT_EQ(
      t.hear(protocol::EpochEnd{epoch_id(1), {}, {}, "", protocol::Continuation::kEverything, {}}),
      "");
}

TEST(Operations, AnAbortedOneFinishesWhenDrained) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  EXPECT_EQ(t.decide(1, 0, {t.aborted(t.key(0), Code::kMismatch, "rank 0 differs")}),
            "end #0 aborted\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(0)}), "");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}),
            "finish call 5: collective mismatch: rank 0 differs\n");
}

TEST(Operations, AVerdictMayComeBeforeTheCall) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.decide(1, 0, {t.aborted(t.key(1), Code::kMismatch, "rank 0 differs")}),
            "end #1 aborted\n");
  t.call(t.all_reduce(5));
  EXPECT_EQ(t.call(t.all_reduce(6)),
            "tell Begin #1 " + kReduce +
                "\nend #1 aborted\nfinish call 6: collective mismatch: rank 0 differs\n");
  EXPECT_EQ(t.call(t.all_reduce(7)).substr(0, 14), "tell Begin #2 ");
}

TEST(Operations, VerdictsAreAcknowledgedWithDone) {
  Transcript t;
  t.become_member();
  t.decide(1, 0,
           {t.aborted(t.key(4), Code::kMismatch, ""), t.aborted(t.key(5), Code::kMismatch, "")});
  t.call(t.all_reduce(5));
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(0)}), "tell Done #0, seen 2\n");
}

TEST(Operations, VerdictsThatMakeNoSenseAreRefused) {
  const std::string broke = "warn: the master at host:1 broke the protocol: ";
  const auto after = [&](std::function<std::string(Transcript&)> what) {
    Transcript t;
    t.become_member();
    t.call(t.all_reduce(5));
    const std::string story = what(t);
    EXPECT_TRUE(story.starts_with(broke)) << story;
    return story.substr(broke.size(), story.find('\n') - broke.size());
  };
  EXPECT_EQ(after([](auto& t) { return t.decide(1, 0, {t.committed(t.key(0))}); }),
            "verdict of #0 is to commit, but it is not done here");
  EXPECT_EQ(after([](auto& t) { return t.decide(1, 0, {t.committed(t.key(1))}); }),
            "verdict of #1 is to commit, but it was not called here");
  EXPECT_EQ(after([](auto& t) { return t.decide(1, 0, {t.aborted(t.key(0), Code::kOk, "")}); }),
            "verdict of #0 contradicts itself");
  EXPECT_EQ(after([](auto& t) { return t.decide(2, 0, {}); }), "verdicts of epoch 1.2");
  EXPECT_EQ(after([](auto& t) { return t.decide(1, 1, {}); }), "verdicts from #1 after 0");
  EXPECT_EQ(after([](auto& t) { return t.lose(1, 3, {t.key(0)}); }),
            "the end of epoch 1.1 is to commit (#0), but it is not done here");
}

TEST(Operations, ItsTimeoutAsksTheMasterAndTheVerdictDecides) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5, "a", std::chrono::milliseconds(1500)));
  EXPECT_EQ(t.wait(1.4), "");
  EXPECT_EQ(t.wait(0.1), "tell AbortRequest a#0, operation timeout: " + kReduce +
                             " (a, #0) in epoch 1.1 timed out after 1.5 s on rank 1 (peer 1.2)\n");
  EXPECT_EQ(t.wait(0.4), "");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(0, "a")}), "") << "it is given up";
  EXPECT_EQ(t.decide(1, 0, {t.aborted(t.key(0, "a"), Code::kOperationTimeout, "late")}),
            "end a#0 aborted\n");
}

TEST(Operations, OneThatIsDoneWaitsForTheVerdictOfItsTimeout) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5, "", std::chrono::milliseconds(1500)));
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(0)}), "tell Done #0\n");
  EXPECT_EQ(t.wait(1.5).substr(0, 20), "tell AbortRequest #0");
  EXPECT_EQ(t.decide(1, 0, {t.committed(t.key(0))}), "end #0 committed\nfinish call 5: ok\n");
}

TEST(Operations, ATimeoutMayBeForEver) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5, "", Duration::max()));
  EXPECT_EQ(t.wait(1.5), "");
}

TEST(Operations, ALocalFailureFailsEverywhere) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  EXPECT_EQ(t.on(OpFailed{epoch_id(1), t.key(0), {Code::kSystem, "no memory", {}}}),
            "tell AbortRequest #0, system: " + kReduce +
                " (#0) in epoch 1.1 failed on rank 1: no memory\n");
}

TEST(Operations, ALossFreezesWhatIsNotDone) {
  Transcript t;
  t.become_member();
  for (Handle handle = 5; handle < 8; ++handle) t.call(t.all_reduce(handle));
  t.on(OpTransferred{epoch_id(1), t.key(0)});
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}}),
            "info: epoch 1.1 is ending: peer 1.3 lost\n"
            "tell StateReport, #0 done, #1 not done, #2 not done\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), t.key(1)}), "");
  EXPECT_EQ(t.call(t.all_reduce(9)), "");  // its epoch is ending: the call waits for the end
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}}),
            "tell StateReport, #0 done, #1 not done, #2 not done\n");
  EXPECT_EQ(t.lose(1, 3, {t.key(0)}),
            "warn: epoch 1.1 ended: peer 1.3 lost\n"
            "end #0 committed\n"
            "finish call 5: ok\n"
            "end #1 aborted\n"
            "end #2 aborted\n"
            "end #3 aborted\n"
            "finish call 9: peer lost: " +
                kReduce + " (#3) in epoch 1.1: peer 1.3 lost" + kRestart);
  EXPECT_EQ(
      t.on(OpDrained{epoch_id(1), t.key(1)}),
      "finish call 6: peer lost: " + kReduce + " (#1) in epoch 1.1: peer 1.3 lost" + kRestart);
  EXPECT_EQ(t.call(t.all_reduce(10)), "end #4 aborted\nfinish call 10: peer lost: " + kReduce +
                                          " (#4) in epoch 1.1: peer 1.3 lost" + kRestart);
}

// A barrier is done here once this peer has reached it. The master knew whether the lost peer had.
TEST(Operations, ABarrierFailsWithTheMemberItWaitedFor) {
  Transcript t;
  t.become_member();
  t.call(t.kind(5, OpKind::kBarrier));
  t.call(t.kind(6, OpKind::kBarrier));
  t.decide(1, 0, {t.committed(t.key(0))});
  EXPECT_EQ(t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}}),
            "info: epoch 1.1 is ending: peer 1.3 lost\n"
            "tell StateReport, #1 not done\n");
}

TEST(Operations, NoTimeoutWhileTheEpochEnds) {
  Transcript t;
  t.become_member();
  OpRequest request = t.all_reduce(5);
  request.timeout = std::chrono::seconds(1);
  t.call(request);
  t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}});
  EXPECT_EQ(t.wait(1.5), "");
}

TEST(Operations, ADoneOperationIsOnlyCommittedIfListed) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.on(OpTransferred{epoch_id(1), t.key(0)});
  EXPECT_EQ(t.lose(1, 3),
            "warn: epoch 1.1 ended: peer 1.3 lost\n"
            "end #0 aborted\n");
}

// ---- Kept results ----

const std::string kKeep = "all_reduce(sum, float32, 100 elements, world size 3, on_loss keep)";

OpRequest kept_request(Handle handle) {
  OpRequest request = Transcript().all_reduce(handle);
  request.count = 100;
  request.keep = true;
  return request;
}

protocol::EpochEnd end_with(
    std::vector<protocol::Kept> kept,
    protocol::Continuation continuation = protocol::Continuation::kEverything) {
  return {epoch_id(1), {{peer_id(3), ""}}, {}, "peer 1.3 lost", continuation, std::move(kept)};
}

protocol::EpochStart without_the_third(Transcript& t) {
  protocol::EpochStart start = t.start_of(2, {1, 2});
  start.generation = epoch_id(1);
  start.left = {peer_id(3)};
  return start;
}

TEST(Operations, AFinishedOperationIsReportedAndKept) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.call(kept_request(5)),
            "tell Begin #0 " + kKeep + "\nstart call 5 as #0: 1 of 3, from 1.1, to 1.3\n");
  t.on(OpProgressed{epoch_id(1), t.key(0), 40});
  EXPECT_NE(t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}})
                .find("StateReport, #0 not done 40\n"),
            std::string::npos);
  t.on(OpProgressed{epoch_id(1), t.key(0), 60});
  EXPECT_TRUE(t.hear(end_with({{t.key(0), 60}})).starts_with("warn: the master at host:1 broke"))
      << "what was not reported cannot be kept";
}

TEST(Operations, AnEndThatKeepsAndContinuesNothingIsRefused) {
  Transcript t;
  t.become_member();
  t.call(kept_request(5));
  t.on(OpProgressed{epoch_id(1), t.key(0), 40});
  t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}});
  const auto end = end_with({{t.key(0), 40}}, protocol::Continuation::kNothing);
  EXPECT_TRUE(t.hear(end).starts_with("warn: the master at host:1 broke"));
}

TEST(Operations, TheRestOfWhatIsKeptBeginsAgain) {
  Transcript t;
  t.become_member();
  t.call(kept_request(5));
  t.on(OpProgressed{epoch_id(1), t.key(0), 40});
  EXPECT_EQ(t.hear(end_with({{t.key(0), 30}})),
            "warn: peer 1.3 lost; the others go on\nend #0 again, keeping 30\n");
  t.hear(without_the_third(t));
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}),
            "tell Begin #0 all_reduce(sum, float32, 100 elements, world size 2, on_loss keep)\n"
            "start call 5 as #0: 1 of 2, from 1.1, to 1.1, after 30\n");
  EXPECT_NE(t.hear(protocol::FreezeRequest{epoch_id(2), {}}).find("StateReport, #0 not done 30\n"),
            std::string::npos);
  t.hear(protocol::EpochEnd{
      epoch_id(2), {}, {}, "", protocol::Continuation::kEverything, {{t.key(0), 30}}});
  t.on(OpDrained{epoch_id(2), t.key(0)});
  protocol::EpochStart start = t.start_of(3, {1, 2});
  start.generation = epoch_id(1);
  t.hear(start);
  t.on(OpProgressed{epoch_id(3), t.key(0), 50});
  EXPECT_EQ(t.on(OpTransferred{epoch_id(3), t.key(0)}), "tell Done #0\n");
  EXPECT_EQ(t.decide(3, 0, {t.committed(t.key(0))}),
            "end #0 committed\nfinish call 5: ok, to 30 over 1.1 1.2 1.3, to 100 over 1.1 1.2\n");
}

// The kept first part is restored too, so the ring reports the operation as drained twice.
TEST(Operations, AnOperationThatWasKeptInVainIsDrainedBeforeItFails) {
  for (const bool early : {true, false}) {
    Transcript t;
    t.become_member();
    t.call(kept_request(5));
    t.on(OpProgressed{epoch_id(1), t.key(0), 40});
    t.hear(end_with({{t.key(0), 40}}));
    if (!early) t.on(OpDrained{epoch_id(1), t.key(0)});
    EXPECT_EQ(t.on(LeaveCalled{}), "tell Leave\nclose\nend #0 aborted\n");
    if (early) {
      EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}), "");
    }
    EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}).substr(0, 29),
              "finish call 5: invalid state:");
  }
}

TEST(Operations, UnderPolicyRaiseOnlyWhatIsKeptGoesOn) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.call(kept_request(6));
  t.on(OpDrained{epoch_id(1), t.key(0)});
  EXPECT_EQ(t.hear(end_with({{t.key(1), 0}}, protocol::Continuation::kKept)),
            "warn: epoch 1.1 ended: peer 1.3 lost\n"
            "end #0 aborted\nend #1 again\n");
  t.on(OpDrained{epoch_id(1), t.key(0)});
  t.on(OpDrained{epoch_id(1), t.key(1)});
  const std::string story = t.hear(without_the_third(t));
  EXPECT_NE(story.find("start call 6"), std::string::npos) << story;
  EXPECT_EQ(story.find("reconfigured"), std::string::npos) << "the application does not look";
  EXPECT_EQ(t.call(t.all_reduce(7)).find("tell"), std::string::npos)
      << "it is not to be waited for";
  EXPECT_NE(t.joint(8, JointKind::kArePeersPending).find("peer lost"), std::string::npos);
  EXPECT_EQ(t.joint(9, JointKind::kUpdateTopology), "tell Vote 0 update_topology of 1.2\n");
  t.on(OpTransferred{epoch_id(2), t.key(1)});
  EXPECT_NE(
      t.decide(2, 0, {t.committed(t.key(1))}).find("finish call 6: ok, to 100 over 1.1 1.2\n"),
      std::string::npos);
  EXPECT_NE(t.hear(t.start_of(3, {1, 2})).find("finish joint call 9: ok"), std::string::npos);
  EXPECT_NE(t.call(t.all_reduce(10)).find("start call 10"), std::string::npos);
}

TEST(Operations, OnlySumsAndAveragesThatCanBeRestoredAreKept) {
  Transcript t;
  t.become_member();
  OpRequest request = kept_request(5);
  request.reduce = ReduceOp::kMax;
  EXPECT_NE(t.call(request).find("on_loss=\"keep\" is for sums and averages, not for MAX"),
            std::string::npos);
  Options options = Transcript::default_options();
  options.restore = false;
  Transcript other(options);
  other.become_member();
  EXPECT_NE(other.call(kept_request(5)).find("PCCL_RESTORE is off"), std::string::npos);
}

TEST(Operations, AVerdictMayComeBeforeItIsDrained) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.go_on(1);
  t.reconfigure(2);
  EXPECT_EQ(t.decide(2, 0, {t.aborted(t.key(0), Code::kMismatch, "rank 0 differs")}),
            "tell Begin #0 " + kReduce + "\nend #0 aborted\n");
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}),
            "finish call 5: collective mismatch: rank 0 differs\n");
}

TEST(Operations, ItsTimeGoesOnInAReconfiguration) {
  Transcript t;
  t.become_member();
  OpRequest request = t.all_reduce(5);
  request.timeout = std::chrono::seconds(1);
  t.call(request);
  t.hear(protocol::FreezeRequest{epoch_id(1), {}});
  EXPECT_EQ(t.wait(1.5), "");
  t.go_on(1);
  t.on(OpDrained{epoch_id(1), t.key(0)});
  const std::string story = t.reconfigure(2);
  EXPECT_NE(story.find("tell Begin #0"), std::string::npos);
  EXPECT_NE(story.find("tell AbortRequest #0, operation timeout"), std::string::npos) << story;
  EXPECT_EQ(story.find("start call"), std::string::npos);
}

TEST(Operations, AVoteIsCastAgainAfterTheLastBegin) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  EXPECT_EQ(t.joint(9, JointKind::kUpdateTopology), "tell Vote 0 update_topology of 1.1\n");
  t.go_on(1);
  EXPECT_EQ(t.reconfigure(2).find("tell Vote"), std::string::npos);
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}),
            "tell Begin #0 " + kReduce + "\nstart call 5 as #0: 1 of 3, from 1.1, to 1.3\n" +
                "tell Vote 0 update_topology of 1.2\n");
}

// Found by the simulator (seed 6550 at that time): the vote was never cast, and the call hung.
TEST(Operations, AVoteFollowsAReconfigurationThatALossOvertakes) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.go_on(1);
  t.reconfigure(2);
  t.lose(2, 3);
  t.on(OpDrained{epoch_id(1), t.key(0)});
  EXPECT_EQ(t.joint(9, JointKind::kUpdateTopology), "tell Vote 0 update_topology of 1.2\n");
}

TEST(Operations, AVoteThatAReconfigurationMadeVoidIsCastInTheBrokenGroup) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.joint(9, JointKind::kUpdateTopology);
  t.go_on(1);
  t.reconfigure(2);
  EXPECT_NE(t.lose(2, 3).find("tell Vote 0 update_topology of 1.2\n"), std::string::npos);
}

TEST(Operations, LeavingInAReconfigurationWaitsForWhatIsLent) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.go_on(1);
  t.reconfigure(2);
  EXPECT_EQ(t.on(LeaveCalled{}).find("gone"), std::string::npos);
  const std::string story = t.on(OpDrained{epoch_id(1), t.key(0)});
  EXPECT_NE(story.find("finish call 5: invalid state"), std::string::npos) << story;
  EXPECT_NE(story.find("gone"), std::string::npos) << story;
}

TEST(Operations, AVoteHoldsWhatIsCalledAfterIt) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.joint(6, JointKind::kUpdateTopology);
  EXPECT_EQ(t.call(t.all_reduce(7)), "");
  EXPECT_EQ(t.call(t.all_reduce(8)), "");
  protocol::Answer nothing;
  EXPECT_EQ(t.hear(nothing),
            "finish joint call 6: ok, rank 1 of 3 in epoch 1.1\n"
            "tell Begin #1 " +
                kReduce +
                "\n"
                "start call 7 as #1: 1 of 3, from 1.1, to 1.3\n"
                "tell Begin #2 " +
                kReduce +
                "\n"
                "start call 8 as #2: 1 of 3, from 1.1, to 1.3\n");
}

TEST(Operations, AnotherJointCallHoldsNothing) {
  Transcript t;
  t.become_member();
  t.joint(6, JointKind::kArePeersPending);
  EXPECT_EQ(t.call(t.all_reduce(7)).substr(0, 14), "tell Begin #0 ");
}

TEST(Operations, AHeldOperationStartsInTheNewEpochFromZero) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  t.joint(6, JointKind::kUpdateTopology);
  t.call(t.all_reduce(7));
  EXPECT_EQ(
      t.decide(1, 0, {t.aborted(t.key(0), Code::kMembershipChanged, "rank 0 had not posted it")}),
      "end #0 aborted\n");
  EXPECT_EQ(t.hear(t.start_of(2, {1, 2, 3, 4})),
            "begin epoch 1.2 with 1.1 1.3 1.4\n"
            "info: epoch 1.2 begins: this process is rank 1 of 4\n");
  // update_topology returns last. The #0 of the old epoch is not taken for the #0 of the new one.
  EXPECT_EQ(t.on(OpDrained{epoch_id(1), t.key(0)}),
            "finish call 5: membership changed: rank 0 had not posted it\n"
            "finish joint call 6: ok, rank 1 of 4 in epoch 1.2\n"
            "tell Begin #0 all_reduce(sum, float32, 8 elements, world size 4)\n"
            "start call 7 as #0: 1 of 4, from 1.1, to 1.3\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(2), t.key(0)}), "tell Done #0\n");
}

TEST(Operations, AHeldOneStillFailsInABrokenGroup) {
  Transcript t;
  t.become_member();
  t.lose(1, 3);
  t.joint(6, JointKind::kUpdateTopology);
  EXPECT_EQ(t.call(t.all_reduce(7)), "");
  protocol::Answer late;
  late.code = Code::kTooFewPeers;
  late.text = "1 of 2";
  EXPECT_EQ(t.hear(late),
            "finish joint call 6: too few peers: update_topology: 1 of 2\n"
            "end #0 aborted\n"
            "finish call 7: peer lost: " +
                kReduce + " (#0) in epoch 1.1: peer 1.3 lost" + kRestart);
}

TEST(Operations, RanksThatShiftedUnderAHeldCallFailIt) {
  Transcript t;
  t.become_member();
  t.joint(4, JointKind::kUpdateTopology);
  t.call(t.kind(5, OpKind::kSend, 2));
  t.call(t.kind(6, OpKind::kBroadcast, 2));
  t.call(t.kind(7, OpKind::kAllGather));
  t.call(t.kind(8, OpKind::kBroadcast, 0));
  const std::string story = t.hear(t.start_of(2, {1, 2, 4}));
  const std::string left =
      " was called while the membership changed: peer 1.3 has left; look at the new ranks and call "
      "it again\n";
  EXPECT_EQ(story.substr(story.find("finish call 5")),
            // The send: its receiver has left, and no other member counts under its tag. The
            // broadcast: all members count it. It takes its number, and the master informs them.
            "finish call 5: membership changed: send" + left +
                "tell Begin #0 broadcast(float32, 8 elements, from peer 1.3, world size 3)\n"
                "tell AbortRequest #0, membership changed: broadcast" +
                left +
                "tell Begin #1 all_gather(float32, 8 elements, world size 3)\n"
                "tell AbortRequest #1, membership changed: all_gather was called while the "
                "membership changed: its ranks are no longer "
                "the same; look at the new ranks and call it again\n"
                "tell Begin #2 broadcast(float32, 8 elements, from peer 1.1, world size 3)\n"
                "start call 8 as #2: 1 of 3, from 1.1, to 1.4\n");
  EXPECT_EQ(t.decide(2, 0, {t.aborted(t.key(0), Code::kMembershipChanged, "so")}),
            "end #0 aborted\nfinish call 6: membership changed: so\n");
}

TEST(Operations, AWorldOfOne) {
  Transcript t;
  t.register_now();
  t.hear(t.start_of(1, {2}));
  EXPECT_EQ(t.call(t.all_reduce(5)).substr(0, 14), "tell Begin #0 ");
  EXPECT_EQ(
      t.call(t.kind(6, OpKind::kBroadcast, 0)),
      "tell Begin #1 broadcast(float32, 8 elements, from peer 1.2, world size 1)\nstart call 6 as "
      "#1: 0 of 1\n");
  EXPECT_EQ(
      t.call(t.kind(7, OpKind::kAllGather)),
      "tell Begin #2 all_gather(float32, 8 elements, world size 1)\nstart call 7 as #2: 0 of 1\n");
}

TEST(Operations, WrongCallsTakeNoNumber) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(
      t.call(t.kind(5, OpKind::kBroadcast, 3)),
      "finish call 5: invalid argument: broadcast: there is no rank 3: the world size is 3\n");
  EXPECT_EQ(t.call(t.kind(6, OpKind::kBroadcast, 0)).substr(0, 14), "tell Begin #0 ");
}

// A call that is right in a smaller group takes its number, so that all members count alike.
TEST(Operations, AFormatTooCoarseForTheRingIsAbortedForAll) {
  Options options = Transcript::default_options();
  options.given.pattern = protocol::PatternChoice::kRing;
  Transcript t(options);
  t.become_member();
  OpRequest request = t.all_reduce(5);
  request.format = {4, 64, 8};
  EXPECT_EQ(t.call(request),
            "tell Begin #0 all_reduce(sum, float32, 8 elements, "
            "quantize=MinMax(bits=4, block=64, result_bits=8), world size 3)\n"
            "tell AbortRequest #0, invalid argument: all_reduce: quantize=MinMax(bits=4, block=64, "
            "result_bits=8) does not go around a ring of 3 members (PCCL_PATTERN=ring): each of "
            "its 2 hops would round the sum to 4 bits once more; use bits=8 or BFloat16(), or set "
            "another PCCL_PATTERN on all peers\n");
  EXPECT_EQ(t.decide(1, 0, {t.aborted(t.key(0), Code::kInvalidArgument, "too coarse")}),
            "end #0 aborted\nfinish call 5: invalid argument: too coarse\n");
  request.handle = 6;
  request.format = {8, 256, 8};
  EXPECT_NE(t.call(request).find("start call 6 as #1: 1 of 3, from 1.1, to 1.3"),
            std::string::npos);
}

TEST(Operations, AsManyAsTheLimitAndNoMore) {
  Transcript t;
  t.become_member();
  for (Handle handle = 0; handle < protocol::kOpsOpenMax; ++handle)
    t.call(t.all_reduce(handle + 10));
  EXPECT_EQ(t.call(t.all_reduce(5)),
            "finish call 5: invalid state: 65536 operations of this process are in flight, the "
            "most there can be: wait for some of them\n");
  t.on(OpTransferred{epoch_id(1), t.key(0)});
  t.decide(1, 0, {t.committed(t.key(0))});
  EXPECT_NE(t.call(t.all_reduce(5)).find("start call 5"), std::string::npos);
}

TEST(Operations, LongTagsHaveALimitOfTheirOwn) {
  Transcript t;
  t.become_member();
  std::string story;
  const std::string tag(256, 'x');
  for (Handle handle = 0; handle <= (4u << 20) / 256; ++handle)
    story = t.call(t.all_reduce(handle, tag));
  EXPECT_EQ(story,
            "finish call 16384: invalid state: the tags, sizes of parts and call sites of the "
            "operations in flight have 4194304 bytes together, at most 4194304 are allowed: wait "
            "for some of them, or use shorter tags\n");
  t.decide(1, 0, {t.aborted(t.key(0, tag), Code::kMismatch, "")});
  EXPECT_NE(t.call(t.all_reduce(5, tag)).find("start call 5"), std::string::npos);
}

}  // namespace
}  // namespace pccl::peer
