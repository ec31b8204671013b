#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

// A group of a, b and c in which the peer timeout is twenty ticks.
struct GroupWaitsTest : testing::Test {
  GroupWaitsTest() { h.found({"a", "b", "c"}); }
  std::string told(const std::string& name) {
    const auto* notice = h.last<protocol::Notice>(name);
    return notice == nullptr ? "" : notice->text;
  }
  void begin(const std::string& name, OpKey key, const protocol::OpInfo& info) {
    h.say(name, protocol::Begin{epoch(1), key, info});
  }
  void wait(int ticks) { h.tick_with({"a", "b", "c"}, ticks); }
  protocol::OpInfo send(const std::string& from, const std::string& to) {
    protocol::OpInfo info;
    info.kind = protocol::OpKind::kSend;
    info.root = h.id(from);
    info.receiver = h.id(to);
    info.world_size = 3;
    return info;
  }
  Harness h;
};

TEST_F(GroupWaitsTest, TwoCallsThatDoNotMatchAreNamedAtEachRank) {
  begin("a", op(0), all_reduce(1));
  wait(4);
  h.vote("b", epoch(1), 0);
  wait(14);
  EXPECT_EQ(told("a"), "");
  wait(3);
  EXPECT_EQ(told("a"),
            "all_reduce(sum, float32, 1 element, world size 2) (#0) in epoch 1.1 has waited for "
            "10 s for rank 1, which has been in update_topology for 8 s; for rank 2, which has not "
            "called anything since it was admitted, 10 s ago");
  EXPECT_EQ(told("b"), "");
  wait(4);
  EXPECT_EQ(told("b"),
            "update_topology has waited for 10 s for rank 0, which has been in all_reduce (#0) for "
            "12 s; for rank 2, which has not called anything since it was admitted, 12 s ago");
  EXPECT_EQ(told("c"), "") << "it waits for nobody";
  const Lines log = h.take_log();
  EXPECT_EQ(std::count(log.begin(), log.end(), told("a")), 1);
  EXPECT_EQ(std::count(log.begin(), log.end(), told("b")), 1);
}

TEST_F(GroupWaitsTest, TheEndOfAnAnnouncedWaitIsSaidToo) {
  h.vote("a", epoch(1), 0);
  wait(22);
  ASSERT_NE(told("a"), "");
  h.vote("b", epoch(1), 0);
  h.vote("c", epoch(1), 0);
  wait(1);
  EXPECT_EQ(told("a"), "update_topology no longer waits, after 11.5 s");
  EXPECT_EQ(told("b"), "");
}

TEST_F(GroupWaitsTest, TwoSendsThatFaceEachOtherAreNamed) {
  begin("a", op(0, "a to b"), send("a", "b"));
  begin("b", op(0, "b to a"), send("b", "a"));
  wait(22);
  for (const char* name : {"a", "b"})
    EXPECT_NE(told(name).find("both send and neither receives"), std::string::npos) << told(name);
}

TEST_F(GroupWaitsTest, AReceiverWaitsInARecv) {
  begin("b", op(0), send("a", "b"));
  wait(22);
  EXPECT_EQ(told("b").find("recv(float32, "), 0u) << told("b");
}

TEST_F(GroupWaitsTest, ATransferThatRunsIsNoWait) {
  for (const char* name : {"a", "b", "c"}) begin(name, op(0), all_reduce(1));
  wait(40);
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(told(name), "");
}

}  // namespace
}  // namespace pccl::master
