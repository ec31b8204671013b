#include "csrc/peer/joint.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::Answer;
using protocol::JointKind;

Answer answer(uint32_t number, JointKind kind, Code code = Code::kOk, std::string text = "") {
  Answer out;
  out.number = number;
  out.kind = kind;
  out.code = code;
  out.text = std::move(text);
  return out;
}

TEST(Joint, OneAfterTheOtherWithGrowingNumbers) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.joint(5, JointKind::kArePeersPending), "tell Vote 0 are_peers_pending of 1.1\n");
  EXPECT_EQ(t.joint(6, JointKind::kUpdateTopology),
            "finish joint call 6: invalid state: update_topology: another joint call of this "
            "process, are_peers_pending, is under way: "
            "wait for it first\n");
  Answer pending = answer(0, JointKind::kArePeersPending);
  pending.pending = true;
  EXPECT_EQ(t.hear(pending), "finish joint call 5: ok, pending\n");
  EXPECT_EQ(t.joint(7, JointKind::kUpdateTopology), "tell Vote 1 update_topology of 1.1\n");
  EXPECT_EQ(t.hear(answer(1, JointKind::kUpdateTopology)),
            "finish joint call 7: ok, rank 1 of 3 in epoch 1.1\n");
}

TEST(Joint, NumbersStartAgainWithTheGeneration) {
  Transcript t;
  t.become_member();
  t.joint(5, JointKind::kUpdateTopology);
  t.hear(t.start_of(2, {1, 2, 3, 4}));
  EXPECT_EQ(t.joint(6, JointKind::kArePeersPending), "tell Vote 0 are_peers_pending of 1.2\n");
}

// A call of a reconfigure, all of whose processes are members.
JointCalled regroup(Handle handle, double seconds = 5) {
  JointCalled call{handle, JointKind::kUpdateTopology, {}, {}, {}};
  call.timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  call.rendezvous = {.uuid = 9, .handles = {{{"10.0.0.1", 4000}, "0000000000000001"}}};
  return call;
}

TEST(Joint, ARegroupHasNoNumber) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.on(regroup(5)), "tell Regroup 9\n");
  EXPECT_EQ(t.hear(protocol::Regrouped{9, Code::kPeerLost, "rank 2 was lost"}),
            "finish joint call 5: peer lost: rank 2 was lost\n");
  EXPECT_EQ(t.joint(6, JointKind::kArePeersPending), "tell Vote 0 are_peers_pending of 1.1\n");
}

TEST(Joint, ARegroupEndsWithTheNextGeneration) {
  Transcript t;
  t.become_member();
  t.on(regroup(5));
  EXPECT_NE(t.hear(t.start_of(2, {3, 2})).find("finish joint call 5: ok, rank 1 of 2"),
            std::string::npos);
  EXPECT_EQ(t.joint(6, JointKind::kArePeersPending), "tell Vote 0 are_peers_pending of 1.2\n");
}

TEST(Joint, ARegroupMayGoElsewhere) {
  Transcript t;
  t.become_member();
  t.on(regroup(5));
  EXPECT_EQ(t.hear(protocol::Regrouped{9, Code::kOk, ""}), "finish joint call 5: ok, elsewhere\n");
  t.joint(6, JointKind::kArePeersPending);
  EXPECT_EQ(t.on(regroup(7)), "finish joint call 7: ok, elsewhere\n")
      << "it cannot make this call here now";
}

TEST(Joint, ARegroupIsGivenUpByARefusal) {
  Transcript t;
  t.become_member();
  t.on(regroup(5));
  EXPECT_EQ(t.on(JointGivenUp{5}), "tell Regroup 9: it has given up the call\n");
  EXPECT_EQ(t.on(JointGivenUp{5}), "");
}

TEST(Joint, ARegroupEndsWithTheConnectionToItsHost) {
  Transcript t;
  t.become_member();
  t.on(regroup(5));
  const std::string lost = t.on(MasterClosed{{Code::kMasterLost, "reset", {}}});
  EXPECT_NE(lost.find("finish joint call 5: peer lost: "), std::string::npos) << lost;
}

TEST(Joint, AHostWithoutAnAnswerIsLost) {
  Transcript t;
  t.become_member();
  t.on(regroup(5, 2));
  t.wait(2.9);
  const std::string over = t.wait(0.2);
  EXPECT_NE(over.find("it does not answer"), std::string::npos) << over;
}

TEST(Joint, AnswersToARegroupAreOfItsUuid) {
  Transcript t;
  t.become_member();
  t.on(regroup(5));
  EXPECT_NE(t.hear(protocol::Regrouped{8, Code::kOk, ""}).find("close"), std::string::npos);
}

TEST(Joint, ItsTimeoutAsksTheMasterOnce) {
  Transcript t;
  t.become_member();
  t.joint(5, JointKind::kUpdateTopology, 1.5);
  EXPECT_EQ(t.wait(1.4), "");
  EXPECT_EQ(t.wait(0.1), "tell JointAbort 0 of 1.1\n");
  EXPECT_EQ(t.wait(0.5), "");
  EXPECT_EQ(
      t.hear(answer(0, JointKind::kUpdateTopology, Code::kOperationTimeout, "rank 2 did not vote")),
      "finish joint call 5: operation timeout: update_topology: rank 2 did not vote\n");
}

TEST(Joint, TheAnswerThatCrossedTheTimeoutCounts) {
  Transcript t;
  t.become_member();
  t.joint(5, JointKind::kUpdateTopology, 1.5);
  t.wait(1.5);
  EXPECT_EQ(t.hear(t.start_of(2, {1, 2})),
            "begin epoch 1.2 with 1.1\n"
            "info: epoch 1.2 begins: this process is rank 1 of 2\n"
            "finish joint call 5: ok, rank 1 of 2 in epoch 1.2\n");
}

TEST(Joint, GivingUpIsATimeoutOfNow) {
  Transcript t;
  t.become_member();
  t.joint(5, JointKind::kUpdateTopology, 100);
  EXPECT_EQ(t.on(JointGivenUp{4}), "");  // handle of another call
  EXPECT_EQ(t.on(JointGivenUp{5}), "tell JointAbort 0 of 1.1\n");
  EXPECT_EQ(t.on(JointGivenUp{5}), "");
}

TEST(Joint, AVoteInTheBackgroundIsCastAgainWhenItsEndIsAwaited) {
  Transcript t;
  t.become_member();
  JointCalled call{5, JointKind::kSyncSharedState, {}, {}, {}};
  call.background = true;
  EXPECT_EQ(t.on(call), "tell Vote 0 sync_shared_state of 1.1 in the background\n");
  EXPECT_EQ(t.on(JointAwaited{4}), "") << "another call";
  EXPECT_EQ(t.on(JointAwaited{5}), "tell Vote 0 sync_shared_state of 1.1\n");
  EXPECT_EQ(t.on(JointAwaited{5}), "");
}

TEST(Joint, AnswersThatFitNothingAreRefused) {
  for (const Answer& wrong :
       {answer(1, JointKind::kUpdateTopology), answer(0, JointKind::kArePeersPending)}) {
    Transcript t;
    t.become_member();
    t.joint(5, JointKind::kUpdateTopology);
    EXPECT_TRUE(
        t.hear(wrong).starts_with("warn: the master at host:1 broke the protocol: Answer to "))
        << t.hear(wrong);
  }
  Transcript t;
  t.become_member();
  EXPECT_TRUE(t.hear(answer(0, JointKind::kUpdateTopology))
                  .starts_with("warn: the master at host:1 broke the protocol: "));
}

// No member waits for a refusal. Others may wait for the answer before it, so Resume still brings
// that one.
TEST(Joint, BringsBackWhatWasAnsweredBeforeTheGroupWasBroken) {
  Transcript t;
  t.become_member();
  t.joint(5, JointKind::kArePeersPending);
  t.hear(answer(0, JointKind::kArePeersPending));
  t.joint(6, JointKind::kArePeersPending);
  t.lose(1, 3);
  t.hear(answer(1, JointKind::kArePeersPending, Code::kPeerLost, "peer 1.3 lost"));
  t.on(MasterClosed{{Code::kSystem, "reset", {}}});
  t.wait(0.1);
  const std::string resume = t.on(MasterConnected{});
  EXPECT_TRUE(resume.ends_with(", answered 2 and remembers 0\n")) << resume;
  t.hear(protocol::Resumed{1});
  t.joint(7, JointKind::kUpdateTopology);
  t.hear(answer(2, JointKind::kUpdateTopology, Code::kOperationTimeout, "rank 2 did not vote"));
  t.on(MasterClosed{{Code::kSystem, "reset", {}}});
  t.wait(0.1);
  const std::string again = t.on(MasterConnected{});
  EXPECT_TRUE(again.ends_with(", answered 3 and remembers 0\n")) << again;
}

TEST(Joint, ARepeatedAnswerIsNoNews) {
  Transcript t;
  t.become_member();
  t.joint(5, JointKind::kUpdateTopology);
  t.hear(answer(0, JointKind::kUpdateTopology));
  EXPECT_EQ(t.hear(answer(0, JointKind::kUpdateTopology)), "");
  t.joint(6, JointKind::kArePeersPending);
  EXPECT_EQ(t.hear(answer(0, JointKind::kUpdateTopology)), "");
  EXPECT_EQ(t.hear(answer(1, JointKind::kArePeersPending)), "finish joint call 6: ok\n");
}

// The master measures and changes the ring between the vote and the answer.
TEST(Joint, OptimizeTopologyHoldsCallsUntilItsAnswer) {
  Transcript t;
  t.become_member();
  EXPECT_EQ(t.joint(5, JointKind::kOptimizeTopology), "tell Vote 0 optimize_topology of 1.1\n");
  EXPECT_EQ(t.call(t.all_reduce(6)), "");
  t.go_on(1);
  protocol::EpochStart start = t.start_of(2, {1, 2, 3});
  start.generation = epoch_id(1);
  start.ring = {0, 2, 1};
  const std::string renewed = t.hear(start);
  EXPECT_NE(renewed.find("tell Vote 0 optimize_topology of 1.2\n"), std::string::npos) << renewed;
  Answer done = answer(0, JointKind::kOptimizeTopology);
  done.plan.emplace().ring = {0, 2, 1};
  const std::string story = t.hear(done);
  EXPECT_NE(story.find("finish joint call 5: ok, rank 1 of 3 in epoch 1.1\n"), std::string::npos);
  EXPECT_NE(story.find("tell Begin #0"), std::string::npos) << story;
}

}  // namespace
}  // namespace pccl::peer
