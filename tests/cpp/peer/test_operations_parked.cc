// Operations whose data is still to be staged: they take their number at the call.

#include "csrc/peer/operations.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

const std::string kSum = "all_reduce(sum, float32, 8 elements, world size 3)";

OpRequest parked(Handle handle) {
  OpRequest request = Transcript().all_reduce(handle);
  request.parked = true;
  return request;
}

TEST(Parked, IsAnnouncedAtTheCallAndStartedByItsData) {
  Transcript t;
  t.become_member();
  t.call(t.all_reduce(5));
  EXPECT_EQ(t.call(parked(6)), "tell Begin #1 " + kSum + "\n");
  EXPECT_EQ(t.on(OpStaged{6, {}}), "start call 6 as #1: 1 of 3, from 1.1, to 1.3\n");
  EXPECT_EQ(t.on(OpStaged{6, {}}), "") << "it is no longer parked";
  EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "it never was";
}

TEST(Parked, DataThatCannotBeStagedFailsItForAll) {
  Transcript t;
  t.become_member();
  t.call(parked(5));
  EXPECT_EQ(t.on(OpStaged{5, {Code::kSystem, "the device is lost", {}}}),
            "tell AbortRequest #0, system: " + kSum +
                " (#0) in epoch 1.1 failed on rank 1: the device is lost\n");
  EXPECT_EQ(t.decide(1, 0, {t.aborted(t.key(0), Code::kSystem, "the device is lost")}),
            "end #0 aborted\nfinish call 5: system: the device is lost\n");
  EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "it has ended";
}

TEST(Parked, StagedAfterItWasAborted) {
  Transcript t;
  t.become_member();
  t.call(parked(5));
  EXPECT_EQ(t.decide(1, 0, {t.aborted(t.key(0), Code::kOperationTimeout, "late")}),
            "end #0 aborted\nfinish call 5: operation timeout: late\n")
      << "nothing has read its memory: no drain";
  EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "nothing is left to begin";
}

TEST(Parked, ReachesItsTimeout) {
  Transcript t;
  t.become_member();
  OpRequest request = parked(5);
  request.timeout = std::chrono::seconds(1);
  t.call(request);
  const std::string said = t.wait(1);
  EXPECT_EQ(said.find("tell AbortRequest #0, operation timeout"), 0u) << said;
  EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "its abort is requested";
}

// An empty send, or a receiver that does not keep the rules.
TEST(Parked, ASendWhoseReceiverHasSucceededWithoutTheData) {
  Transcript t;
  t.become_member();
  OpRequest request = t.kind(5, protocol::OpKind::kSend, 2);
  request.parked = true;
  t.call(request);
  protocol::OpInfo info;
  info.kind = protocol::OpKind::kSend;
  info.root = peer_id(2);
  info.receiver = peer_id(3);
  EXPECT_EQ(t.decide(1, 0, {t.committed({tag_of(info), 0})}),
            "end ?#0 committed\nfinish call 5: ok\n");
  EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "it has ended";
}

TEST(Parked, StagedWhileItsCallIsHeld) {
  Transcript t;
  t.become_member();
  t.joint(5, protocol::JointKind::kUpdateTopology);
  EXPECT_EQ(t.call(parked(6)), "");
  EXPECT_EQ(t.call(parked(7)), "");
  EXPECT_EQ(t.call(parked(8)), "");
  EXPECT_EQ(t.on(OpStaged{7, {}}), "");
  EXPECT_EQ(t.on(OpStaged{8, {Code::kSystem, "the device is lost", {}}}), "");
  const std::string said = t.hear(protocol::Answer{});
  const auto has = [&](const std::string& line) { return said.find(line) != std::string::npos; };
  EXPECT_TRUE(has("tell Begin #0")) << said;
  EXPECT_FALSE(has("start call 6")) << said;
  EXPECT_TRUE(has("start call 7 as #1: 1 of 3, from 1.1, to 1.3\n")) << said;
  EXPECT_TRUE(has("tell AbortRequest #2, system: ")) << said;
  EXPECT_FALSE(has("start call 8")) << said;
}

TEST(Parked, BeginsAgainInTheNextEpochAndStartsWithItsData) {
  for (const bool meanwhile : {false, true}) {
    Transcript t;
    t.become_member();
    t.call(parked(5));
    t.hear(protocol::FreezeRequest{epoch_id(1), {}});
    EXPECT_EQ(t.go_on(1).find("end #0"), std::string::npos) << "it is not on the ring";
    if (meanwhile) {
      EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "no epoch to start it in";
    }
    const std::string said = t.reconfigure(2);
    EXPECT_NE(said.find("tell Begin #0"), std::string::npos) << said;
    EXPECT_EQ(said.find("start call 5 as #0") != std::string::npos, meanwhile) << said;
    EXPECT_EQ(t.on(OpStaged{5, {}}).find("start call 5 as #0") == 0u, !meanwhile);
  }
}

TEST(Parked, ALossEndsItAtOnceWithPolicyRaise) {
  Transcript t;
  t.become_member();
  t.call(parked(5));
  t.hear(protocol::FreezeRequest{epoch_id(1), {}});
  const std::string said = t.lose(1, 3);
  EXPECT_NE(said.find("finish call 5: peer lost"), std::string::npos) << said;
  EXPECT_EQ(t.on(OpStaged{5, {}}), "") << "it has ended";
}

}  // namespace
}  // namespace pccl::peer
