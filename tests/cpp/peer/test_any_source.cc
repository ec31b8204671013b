#include "csrc/peer/any_source.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

using protocol::OpKind;

const std::string kCall = "recv(float32, 8 elements, from any rank)";

struct AnySourceTest : testing::Test {
  AnySourceTest() { t.become_member(); }
  OpRequest receive(Handle handle, const std::string& tag = "", double timeout = 0) {
    OpRequest request = t.kind(handle, OpKind::kRecv, kAnySource);
    request.tag = tag;
    request.timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout));
    return request;
  }
  std::string hear_of(uint32_t sender, uint32_t sequence, const std::string& tag = "") {
    return t.hear(protocol::SendBegun{epoch_id(1), peer_id(sender), tag, sequence});
  }
  Transcript t;
};

TEST_F(AnySourceTest, ItAsksOnceForAllThatWait) {
  EXPECT_EQ(t.call(receive(5)), "tell AwaitSend 1 under '' in 1.1\n");
  EXPECT_EQ(t.call(receive(6)), "");
  EXPECT_EQ(t.call(receive(7)), "");
  EXPECT_EQ(t.call(receive(8, "a")), "tell AwaitSend 1 under 'a' in 1.1\n");
  const std::string taken = hear_of(3, 0);
  EXPECT_NE(taken.find("start call 5 as ?#0: 1 of 2, from 1.3\n"), std::string::npos) << taken;
  EXPECT_NE(taken.find("tell AwaitSend 2 under '' in 1.1\n"), std::string::npos) << taken;
  EXPECT_EQ(hear_of(1, 0).find("AwaitSend"), std::string::npos) << "one more was asked for";
  EXPECT_EQ(hear_of(1, 1).find("AwaitSend"), std::string::npos) << "nothing waits any more";
}

TEST_F(AnySourceTest, ItEndsAtItsTimeoutAndWithdrawsTheQuestion) {
  t.call(receive(5, "a", 2));
  t.call(receive(6, "a", 3));
  EXPECT_EQ(t.wait(2), "finish call 5: operation timeout: " + kCall +
                           " (a) timed out after 2 s on rank 1: no rank had begun a send to it "
                           "under this tag\n");
  EXPECT_NE(t.wait(1).find("finish call 6: operation timeout: "), std::string::npos);
  EXPECT_EQ(hear_of(3, 0, "a"), "") << "it has crossed the withdrawal";
  EXPECT_EQ(t.call(receive(7, "a")), "tell AwaitSend 1 under 'a' in 1.1\n");
}

TEST_F(AnySourceTest, AWithdrawalAsksForNothing) {
  t.call(receive(5, "", 2));
  const std::string said = t.wait(2);
  EXPECT_NE(said.find("tell AwaitSend 0 under '' in 1.1\n"), std::string::npos) << said;
}

TEST_F(AnySourceTest, ItAsksForNoMoreThanTheMasterAccepts) {
  for (Handle handle = 0; handle < protocol::kAwaitedSendsMax + 9; ++handle)
    t.call(receive(100 + handle));
  const std::string said = hear_of(3, 0);
  EXPECT_NE(said.find("tell AwaitSend 64 under"), std::string::npos) << said;
}

TEST_F(AnySourceTest, ThereIsABoundOnTags) {
  for (Handle handle = 0; handle < protocol::kAwaitedTagsMax; ++handle)
    t.call(receive(100 + handle, std::to_string(handle)));
  EXPECT_EQ(t.call(receive(5000, "one more")),
            "finish call 5000: invalid state: receives from any source wait under 1024 tags, the "
            "most there can be: wait for some of them, or use fewer tags\n");
  EXPECT_EQ(t.call(receive(5001, "7")), "");
}

TEST_F(AnySourceTest, ItAsksAgainAfterAReconnection) {
  t.call(receive(5));
  t.call(receive(6));
  t.on(MasterClosed{{Code::kSystem, "reset", {}}});
  t.wait(1);
  t.on(MasterConnected{});
  EXPECT_EQ(t.hear(protocol::Resumed{1}),
            "warn: the master at host:1 is back after 1 s\ntell AwaitSend 2 under '' in 1.1\n");
}

TEST_F(AnySourceTest, AReceiveThatIsParkedStartsWithItsData) {
  OpRequest parked = receive(5), staged = receive(6), unfit = receive(7);
  parked.parked = staged.parked = unfit.parked = true;
  for (const OpRequest& request : {parked, staged, unfit}) t.call(request);
  EXPECT_EQ(t.on(OpStaged{6, {}}), "");
  EXPECT_EQ(t.on(OpStaged{7, {Code::kSystem, "the device failed", {}}}), "");
  EXPECT_EQ(hear_of(3, 0).find("start call"), std::string::npos);
  EXPECT_NE(hear_of(3, 1).find("start call 6"), std::string::npos);
  EXPECT_NE(t.on(OpStaged{5, {}}).find("start call 5"), std::string::npos);
  const std::string said = hear_of(3, 2);
  EXPECT_NE(said.find("the device failed"), std::string::npos) << said;
}

}  // namespace
}  // namespace pccl::peer
