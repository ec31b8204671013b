#include "csrc/peer/operations.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::JointKind;
using protocol::OpKind;

const std::string kName = "recv(float32, 8 elements, from any rank)";
const std::string kAsk = "tell AwaitSend 1 under '' in 1.1\n";

OpKey key_of(uint32_t sender, uint32_t sequence) {
  protocol::OpInfo info;
  info.kind = OpKind::kSend;
  info.root = peer_id(sender);
  info.receiver = peer_id(2);
  return {tag_of(info), sequence};
}

std::string begun(uint32_t sender, uint32_t sequence) {
  return "tell Begin ?#" + std::to_string(sequence) + " send(float32, 8 elements, from peer 1." +
         std::to_string(sender) + " to peer 1.2, world size 3)\n";
}

struct OperationsAnySourceTest : testing::Test {
  OperationsAnySourceTest() { t.become_member(); }
  std::string receive(Handle handle, double timeout = 0) {
    OpRequest request = t.kind(handle, OpKind::kRecv, kAnySource);
    request.timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout));
    return t.call(request);
  }
  std::string hear_of(uint32_t sender, uint32_t sequence, uint32_t epoch = 1) {
    return t.hear(protocol::SendBegun{epoch_id(epoch), peer_id(sender), "", sequence});
  }
  std::string lose(uint32_t peer) {
    t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(peer), ""}}});
    return t.lose(1, peer);
  }
  Transcript t{Transcript::retrying()};
};

TEST_F(OperationsAnySourceTest, ItTakesTheSendAndKnowsItsSender) {
  EXPECT_EQ(receive(5), kAsk);
  EXPECT_EQ(hear_of(3, 0), begun(3, 0) + "start call 5 as ?#0: 1 of 2, from 1.3\n");
  EXPECT_EQ(t.on(OpTransferred{epoch_id(1), key_of(3, 0)}),
            "tell Done ?#0\nend ?#0 committed\nfinish call 5: ok, from rank 2\n");
}

TEST_F(OperationsAnySourceTest, AReceiveThatNamesItsSourceTakesTheSendFirst) {
  receive(5);
  t.call(t.kind(6, OpKind::kRecv, 2));
  EXPECT_EQ(hear_of(3, 0), kAsk);
  EXPECT_EQ(hear_of(3, 1), begun(3, 1) + "start call 5 as ?#1: 1 of 2, from 1.3\n");
}

TEST_F(OperationsAnySourceTest, ItTakesAnOlderSendThatIsOpen) {
  receive(5);
  EXPECT_EQ(hear_of(3, 4), begun(3, 0) + "start call 5 as ?#0: 1 of 2, from 1.3\n");
}

TEST_F(OperationsAnySourceTest, ASendThatHasEndedIsPassedOver) {
  receive(5);
  t.decide(1, 0, {t.aborted(key_of(3, 0), Code::kOperationTimeout, "late")});
  const std::string passed =
      "tell Begin ?#0 send(float32, 0 elements, from peer 1.3 to peer 1.2, "
      "world size 3)\nend ?#0 aborted\n";
  EXPECT_EQ(hear_of(3, 1), passed + begun(3, 1) + "start call 5 as ?#1: 1 of 2, from 1.3\n");
}

TEST_F(OperationsAnySourceTest, ItsTimeoutCountsFromTheCall) {
  receive(5, 4);
  t.wait(3);
  hear_of(3, 0);
  EXPECT_EQ(t.wait(0.9).find("AbortRequest"), std::string::npos);
  const std::string said = t.wait(0.2);
  EXPECT_NE(said.find("tell AbortRequest ?#0, operation timeout: "), std::string::npos) << said;
  EXPECT_NE(said.find("timed out after 4 s"), std::string::npos) << said;
}

TEST_F(OperationsAnySourceTest, ALossBreaksIt) {
  receive(5);
  const std::string said = lose(3);
  EXPECT_NE(said.find("finish call 5: peer lost: " + kName + ": "), std::string::npos) << said;
  EXPECT_EQ(receive(6).substr(0, 25), "finish call 6: peer lost:");
}

TEST_F(OperationsAnySourceTest, ItAsksAgainInTheNextEpochOfTheGeneration) {
  receive(5);
  t.hear(protocol::FreezeRequest{epoch_id(1), {}});
  EXPECT_EQ(hear_of(3, 0), "") << "nothing is taken while an epoch ends";
  EXPECT_EQ(receive(6), "");
  EXPECT_EQ(t.go_on(1), "");
  const std::string said = t.reconfigure(2);
  EXPECT_NE(said.find("tell AwaitSend 2 under '' in 1.2\n"), std::string::npos) << said;
  EXPECT_NE(hear_of(3, 0, 2).find("start call 5"), std::string::npos);
}

TEST_F(OperationsAnySourceTest, AVoteDoesNotStopTheOnesBefore) {
  receive(5);
  t.joint(6, JointKind::kUpdateTopology);
  EXPECT_EQ(receive(7), "") << "it is held";
  EXPECT_NE(hear_of(3, 0).find("start call 5 as ?#0"), std::string::npos);
  EXPECT_EQ(hear_of(3, 1), "");
  protocol::Answer answer;
  answer.kind = JointKind::kUpdateTopology;
  const std::string said = t.hear(answer);
  EXPECT_NE(said.find(kAsk), std::string::npos) << said;
}

TEST_F(OperationsAnySourceTest, UpdateTopologyEndsThoseThatHaveNoSend) {
  receive(5);
  t.joint(6, JointKind::kUpdateTopology);
  receive(7);
  const std::string said = t.hear(t.start_of(2, {1, 2, 3, 4}));
  const size_t ended = said.find("finish call 5: membership changed: " + kName);
  const size_t updated = said.find("finish joint call 6: ok");
  const size_t held = said.find("finish call 7: membership changed: " + kName);
  EXPECT_LT(ended, updated) << said;
  EXPECT_LT(updated, held) << said;
  EXPECT_NE(held, std::string::npos) << said;
  EXPECT_EQ(receive(8), "tell AwaitSend 1 under '' in 1.2\n");
}

TEST_F(OperationsAnySourceTest, ALossWithinTheGenerationEndsIt) {
  receive(5);
  t.hear(protocol::FreezeRequest{epoch_id(1), {{peer_id(3), ""}}});
  t.go_on(1);
  protocol::EpochStart start = t.start_of(2, {1, 2});
  start.generation = epoch_id(1);
  start.left = {peer_id(3)};
  const std::string said = t.hear(start);
  EXPECT_NE(said.find("finish call 5: membership changed: " + kName), std::string::npos) << said;
  EXPECT_NE(receive(6).find("finish call 6: membership changed: "), std::string::npos)
      << "the application has not asked";
  t.on(TopologyAsked{});
  EXPECT_EQ(receive(7), "tell AwaitSend 1 under '' in 1.2\n");
}

TEST_F(OperationsAnySourceTest, LeavingEndsIt) {
  receive(5);
  t.joint(6, JointKind::kUpdateTopology);
  receive(7);
  const std::string said = t.on(LeaveCalled{});
  EXPECT_NE(said.find("finish call 5: invalid state: " + kName), std::string::npos) << said;
  EXPECT_NE(said.find("finish call 7: invalid state: " + kName), std::string::npos) << said;
}

TEST_F(OperationsAnySourceTest, ASendOfNoMemberBreaksTheProtocol) {
  receive(5);
  EXPECT_NE(hear_of(9, 0).find("broke the protocol: SendBegun of 1.9"), std::string::npos);
}

TEST_F(OperationsAnySourceTest, ItCountsAmongTheOperationsInFlight) {
  for (Handle handle = 0; handle < protocol::kOpsOpenMax; ++handle) receive(100 + handle);
  EXPECT_EQ(receive(70'000).substr(0, 37), "finish call 70000: invalid state: 655");
  EXPECT_EQ(t.call(t.all_reduce(70'001)).substr(0, 33), "finish call 70001: invalid state:");
}

}  // namespace
}  // namespace pccl::peer
