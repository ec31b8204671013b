#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

// A group of a, b and c in which the peer timeout is twenty ticks.
struct WaitTextsTest : testing::Test {
  WaitTextsTest() { h.found({"a", "b", "c"}); }
  std::string told(const std::string& name) {
    const auto* notice = h.last<protocol::Notice>(name);
    return notice == nullptr ? "" : notice->text;
  }
  std::string verdict(const std::string& name) {
    return h.last<protocol::Verdicts>(name)->verdicts.back().text;
  }
  void begin(const std::string& name, OpKey key, const protocol::OpInfo& info) {
    h.say(name, protocol::Begin{epoch(1), key, info});
  }
  void wait(int ticks) { h.tick_with({"a", "b", "c"}, ticks); }
  protocol::OpInfo send(const std::string& from, const std::string& to) {
    return transfer(h.id(from), h.id(to));
  }
  Harness h;
};

TEST_F(WaitTextsTest, TwoCallsThatDoNotMatchAreNamedAtEachRank) {
  begin("a", op(0), all_reduce(1));
  wait(4);
  h.vote("b", epoch(1), 0);
  wait(14);
  EXPECT_EQ(told("a"), "");
  wait(3);
  EXPECT_EQ(told("a"),
            "all_reduce(sum, float32, 1 element, world size 2) (#0) in epoch 1.1 has waited for "
            "10 s for rank 1, which has been in update_topology for 8 s and waits in turn (all "
            "ranks must make the same calls, in the same order); for rank 2, which has not called "
            "anything since it was admitted, 10 s ago");
  EXPECT_EQ(told("b"), "");
  wait(4);
  EXPECT_EQ(told("b"),
            "update_topology has waited for 10 s for rank 0, which has been in all_reduce (#0) for "
            "12 s and waits in turn (all ranks must make the same calls, in the same order); for "
            "rank 2, which has not called anything since it was admitted, 12 s ago");
  EXPECT_EQ(told("c"), "") << "it waits for nobody";
  const Lines log = h.take_log();
  EXPECT_EQ(std::count(log.begin(), log.end(), told("a")), 1);
  EXPECT_EQ(std::count(log.begin(), log.end(), told("b")), 1);
}

TEST_F(WaitTextsTest, ARankThatReceivesFromAnySourceIsSaidToDoSo) {
  h.say("b", protocol::AwaitSend{epoch(1), "", 1});
  begin("a", op(0), all_reduce(1));
  begin("c", op(0), all_reduce(1));
  wait(22);
  EXPECT_EQ(told("a"),
            "all_reduce(sum, float32, 1 element, world size 2) (#0) in epoch 1.1 has waited for "
            "10 s for rank 1, which waits for a send from any rank");
  h.say("b", protocol::AwaitSend{epoch(1), "", 0});
  h.say("a", protocol::AbortRequest{epoch(1), op(0), Code::kOperationTimeout, "late"});
  EXPECT_NE(verdict("a").find("rank 1, which was in recv from any rank for 11 s and gave it up"),
            std::string::npos)
      << verdict("a");
}

// Two members that wait for each other time out one after the other. The later error has the reason
// that the earlier one has.
TEST_F(WaitTextsTest, AMutualWaitHasTheSameReasonAtBothEnds) {
  const OpKey x = op(0, "x"), y = op(0, "y");
  begin("a", x, all_reduce(1, "x"));
  begin("b", y, all_reduce(1, "y"));
  wait(20);
  h.say("a", protocol::AbortRequest{epoch(1), x, Code::kOperationTimeout, "timed out"});
  EXPECT_NE(verdict("a").find("rank 1, which has been in all_reduce (y, #0) for 10 s"),
            std::string::npos)
      << verdict("a");
  h.say("b", protocol::AbortRequest{epoch(1), y, Code::kOperationTimeout, "timed out"});
  EXPECT_NE(verdict("b").find("rank 0, which was in all_reduce (x, #0) for 10 s and gave it up 0 "
                              "ms ago"),
            std::string::npos)
      << verdict("b");
}

TEST_F(WaitTextsTest, AMutualWaitOfAJointCallHasTheSameReasonAtBothEnds) {
  const std::string rule = " (all ranks must make the same calls, in the same order)";
  for (const bool operation_first : {true, false}) {
    Harness own;
    own.found({"a", "b"});
    own.say("a", protocol::Begin{epoch(1), op(0), all_reduce(1)});
    own.vote("b", epoch(1), 0);
    own.tick_with({"a", "b"}, 20);
    const protocol::AbortRequest late{epoch(1), op(0), Code::kOperationTimeout, "timed out"};
    if (operation_first) own.say("a", late);
    own.say("b", protocol::JointAbort{0, epoch(1)});
    if (!operation_first) own.say("a", late);
    const std::string text = operation_first ? own.last<protocol::Answer>("b")->text
                                             : own.last<protocol::Verdicts>("a")->verdicts[0].text;
    const std::string call = operation_first ? "rank 0, which was in all_reduce (#0)"
                                             : "rank 1, which was in update_topology";
    EXPECT_NE(text.find(call + " for 10 s and gave it up 0 ms ago" + rule), std::string::npos)
        << text;
  }
}

TEST_F(WaitTextsTest, TheEndOfAnAnnouncedWaitIsSaidToo) {
  h.vote("a", epoch(1), 0);
  wait(22);
  ASSERT_NE(told("a"), "");
  h.vote("b", epoch(1), 0);
  h.vote("c", epoch(1), 0);
  EXPECT_EQ(told("a"), "update_topology no longer waits, after 11 s");
  EXPECT_EQ(told("b"), "");
}

TEST_F(WaitTextsTest, TwoSendsThatFaceEachOtherAreNamed) {
  begin("a", op(0, "a to b"), send("a", "b"));
  begin("b", op(0, "b to a"), send("b", "a"));
  wait(22);
  for (const char* name : {"a", "b"})
    EXPECT_NE(told(name).find("both send and neither receives"), std::string::npos) << told(name);
}

// The first one to time out ends its send. The other one's error says the same.
TEST_F(WaitTextsTest, TwoSendsThatFaceEachOtherTimeOutForOneReason) {
  const OpKey from_a = op(0, "a to b"), from_b = op(0, "b to a");
  begin("a", from_a, send("a", "b"));
  begin("b", from_b, send("b", "a"));
  h.say("a", protocol::AbortRequest{epoch(1), from_a, Code::kOperationTimeout, "timed out"});
  h.say("b", protocol::AbortRequest{epoch(1), from_b, Code::kOperationTimeout, "timed out"});
  for (const char* name : {"a", "b"}) {
    const std::string text = h.last<protocol::Verdicts>(name)->verdicts.back().text;
    EXPECT_NE(text.find("both send and neither receives"), std::string::npos) << text;
  }
}

TEST_F(WaitTextsTest, AMemberIsIdleSinceTheEndOfItsLastCall) {
  begin("a", op(0), all_reduce(1));
  begin("b", op(0), all_reduce(1));
  wait(20);
  h.say("a", protocol::AbortRequest{epoch(1), op(0), Code::kOperationTimeout, "timed out"});
  wait(10);
  begin("b", op(1), all_reduce(1));
  wait(21);
  EXPECT_NE(told("b").find("for rank 0, which has not called anything for 15 s, since "
                           "all_reduce (#0); for rank 2"),
            std::string::npos)
      << told("b");
}

TEST_F(WaitTextsTest, AMemberIsIdleSinceTheAnswerToItsJointCall) {
  h.vote("a", epoch(1), 0);
  wait(20);
  h.say("a", protocol::JointAbort{0, epoch(1)});
  wait(10);
  begin("b", op(0), all_reduce(1));
  wait(21);
  EXPECT_NE(told("b").find("for rank 0, which has not called anything for 15 s, since "
                           "update_topology; for rank 2"),
            std::string::npos)
      << told("b");
}

TEST_F(WaitTextsTest, AReceiverWaitsInARecv) {
  begin("b", op(0), send("a", "b"));
  wait(22);
  EXPECT_EQ(told("b").find("recv(float32, "), 0u) << told("b");
}

TEST_F(WaitTextsTest, ATransferThatRunsIsNoWait) {
  for (const char* name : {"a", "b", "c"}) begin(name, op(0), all_reduce(1));
  wait(40);
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(told(name), "");
}

}  // namespace
}  // namespace pccl::master
