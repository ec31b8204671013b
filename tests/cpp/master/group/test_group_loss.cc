#include "master/group/group.h"

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

class GroupLossTest : public testing::Test {
 protected:
  void kill(const std::string& name, const std::string& witness) {
    h.close(name);
    h.say(witness, protocol::LinkReport{h.id(name), protocol::LinkState::kDown, "reset", 1});
  }
  void report(const std::string& name, const std::vector<protocol::OpReport>& ops = {}) {
    h.say(name, protocol::StateReport{epoch(1), ops});
  }
  Harness h;
};

class SyncThroughALoss : public GroupLossTest {
 protected:
  SyncThroughALoss() {
    h.found({"a", "b", "c"}, 0, 2);
    h.vote("a", epoch(1), 0, kSync, offer(4, {1, 2}));
    h.vote("b", epoch(1), 0, kSync, offer(0, {0, 2}, kReceive));
    h.vote("c", epoch(1), 0, kSync, offer(0, {0, 0}, kReceive));
    h.take();
  }
  void lose(const std::string& name) {
    kill(name, name == "a" ? "b" : "a");
    for (const std::string survivor : {"a", "b", "c"}) {
      if (survivor != name) report(survivor);
    }
    h.story();
  }
};

TEST_F(SyncThroughALoss, WithAReceiverItGoesOn) {
  lose("c");
  h.vote("a", epoch(2), 0, kSync, offer(4, {1, 2}));
  h.vote("b", epoch(2), 0, kSync, offer(0, {0, 2}, kReceive));
  EXPECT_EQ(h.take().at(0),
            "a < SyncPlan: a > b: 0 1 gone: peer 1.3 (rank 2, 10.0.0.1:1003) "
            "lost: its process ended or its network broke");
  h.say("b", protocol::Fetched{0, Code::kOk, ""});
  EXPECT_EQ(h.story(), (Lines{"persist", "a < Answer 0 sync_shared_state ok revision 4",
                              "b < Answer 0 sync_shared_state ok revision 4"}));
  h.vote("a", epoch(2), 1, kSync, offer(4, {1, 2}));
  EXPECT_EQ(h.story(), (Lines{"a < Answer 1 sync_shared_state peer lost"}))
      << "a new call needs update_topology first";
}

TEST_F(SyncThroughALoss, WithTheSourceTheReceiversCompleteEachOther) {
  lose("a");
  h.vote("b", epoch(2), 0, kSync, offer(0, {0, 2}, kReceive));
  h.vote("c", epoch(2), 0, kSync, offer(0, {0, 0}, kReceive));
  EXPECT_TRUE(h.take().at(0).starts_with("b < SyncPlan: > b c: 0 1 gone: peer 1.1"));
  h.say("b", protocol::Fetched{0, Code::kSharedState, "nobody has \"k0\""});
  EXPECT_EQ(h.last<protocol::Answer>("c")->text, "nobody has \"k0\"");
}

TEST_F(SyncThroughALoss, GivingUpEndsItForMembersThatHaveYetToVoteAgain) {
  lose("c");
  h.vote("a", epoch(2), 0, kSync, offer(4, {1, 2}));
  h.say("a", protocol::JointAbort{0, epoch(2)});
  EXPECT_EQ(h.story(), (Lines{"a < Answer 0 sync_shared_state operation timeout"}));
  h.vote("b", epoch(2), 0, kSync, offer(0, {0, 2}, kReceive));
  EXPECT_EQ(h.story(), (Lines{"b < Answer 0 sync_shared_state operation timeout"}));
}

class ALiar : public GroupLossTest {
 protected:
  ALiar() {
    h.rtt = 50'000;
    h.found({"a", "b", "c", "d"}, 0, 1);
    for (const std::string name : {"a", "b", "c", "d"})
      h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(8)});
    kill("d", "a");
  }
  // Whether it was removed, and why.
  bool was_blamed(const std::string& name) {
    const auto kicked = h.last<protocol::Kicked>(name);
    if (!kicked) return false;
    EXPECT_NE(kicked->text.find("contradict each other: "), std::string::npos) << kicked->text;
    return true;
  }
  std::vector<OpKey> committed(const std::string& name) {
    const auto end = h.last<protocol::EpochEnd>(name);
    return end ? end->committed : std::vector{op(99)};
  }
};

TEST_F(ALiar, IsLostIfItDeniesWhatTwoHaveReturned) {
  report("a", {{op(0), protocol::OpState::kReturned}});
  report("b", {{op(0), protocol::OpState::kReturned}});
  report("c", {{op(0), protocol::OpState::kNotDone}});
  EXPECT_TRUE(was_blamed("c"));
  EXPECT_EQ(committed("a"), std::vector{op(0)});
  EXPECT_EQ(committed("b"), std::vector{op(0)});
}

TEST_F(ALiar, IsLostIfItHasReturnedWhatTwoHaveNotFinished) {
  report("a", {{op(0), protocol::OpState::kReturned}});
  report("b", {{op(0), protocol::OpState::kNotDone}});
  report("c", {{op(0), protocol::OpState::kNotDone}});
  EXPECT_TRUE(was_blamed("a"));
  EXPECT_EQ(committed("b"), std::vector<OpKey>{});
  EXPECT_EQ(committed("c"), std::vector<OpKey>{});
}

TEST_F(ALiar, IsLostWithAnotherIfOneStandsAgainstOne) {
  report("a", {{op(0), protocol::OpState::kReturned}});
  report("b", {{op(0), protocol::OpState::kDone}});
  report("c", {{op(0), protocol::OpState::kNotDone}});
  EXPECT_TRUE(was_blamed("a"));
  EXPECT_TRUE(was_blamed("c"));
  EXPECT_EQ(committed("b"), std::vector{op(0)});
}

TEST_F(GroupLossTest, ASyncThatASurvivorHasNotCalledEndsWithTheLoss) {
  h.found({"a", "b", "c"}, 0, 2);
  h.vote("a", epoch(1), 0, kSync, offer(4, {1}));
  kill("c", "a");
  report("a");
  report("b");
  EXPECT_EQ(h.story().back(), "a < Answer 0 sync_shared_state peer lost");
}

}  // namespace
}  // namespace pccl::master
