#include "master/group/joint.h"

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::JointKind;
using protocol::LinkState;

// Two machines with two processes each: a and b are group 0, epoch 1; c and d group 1, epoch 2.
class JointTest : public testing::Test {
 protected:
  JointTest() {
    h.found({"a", "b"}, 0);
    h.found({"c", "d"}, 1);
  }
  void kill(const std::string& name, const std::string& witness, uint32_t in_epoch) {
    h.close(name);
    h.say(witness, protocol::LinkReport{h.id(name), LinkState::kDown, "reset", 1});
    h.say(witness, protocol::StateReport{epoch(in_epoch), {}});
  }
  void newcomer(const std::string& name, uint32_t group) {
    h.enlist(name, Harness::hello(2, -1, group));
    h.link_all();
    h.take();
  }
  Harness h;
};

TEST_F(JointTest, UpdateTopologyIsOneBallotForAllGroups) {
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  h.vote("c", epoch(2), 0);
  EXPECT_EQ(h.take(), Lines{});
  newcomer("e", 1);
  h.vote("d", epoch(2), 0);
  EXPECT_EQ(h.take(),
            (Lines{"a < Answer 0 update_topology ok", "b < Answer 0 update_topology ok", "persist",
                   "c < EpochStart 1.3 [c d e] joined [e]", "d < EpochStart 1.3 [c d e] joined [e]",
                   "e < EpochStart 1.3 [c d e] joined [e]"}));
}

TEST_F(JointTest, ArePeersPendingSpeaksForAllGroups) {
  newcomer("e", 1);
  h.vote("a", epoch(1), 0, kPending);
  h.vote("b", epoch(1), 0, kPending);
  h.vote("d", epoch(2), 0, kPending);
  EXPECT_EQ(h.take(), Lines{});
  h.vote("c", epoch(2), 0, kPending);
  EXPECT_EQ(h.take(), (Lines{"a < Answer 0 are_peers_pending ok pending",
                             "b < Answer 0 are_peers_pending ok pending",
                             "c < Answer 0 are_peers_pending ok pending",
                             "d < Answer 0 are_peers_pending ok pending"}));
}

TEST_F(JointTest, SharedStateIsAGroupsOwnBusiness) {
  h.vote("a", epoch(1), 0, kSync, offer(1, {1}));
  h.vote("c", epoch(2), 0);
  h.vote("b", epoch(1), 0, kSync, offer(1, {1}));
  EXPECT_EQ(h.take(), (Lines{"persist", "a < Answer 0 sync_shared_state ok revision 1",
                             "b < Answer 0 sync_shared_state ok revision 1"}));
}

TEST_F(JointTest, ALossInOneGroupDoesNotDisturbTheOther) {
  h.say("c", protocol::Begin{epoch(2), op(0), all_reduce(8)});
  h.say("d", protocol::Begin{epoch(2), op(0), all_reduce(8)});
  kill("b", "a", 1);
  h.story();
  h.say("c", protocol::Done{epoch(2), op(0), 0});
  h.say("d", protocol::Done{epoch(2), op(0), 0});
  EXPECT_EQ(h.story(), (Lines{"c < Verdicts 0: #0 committed", "d < Verdicts 0: #0 committed"}));
  // The broken group waits for the next update of all groups. The others learn that one is pending.
  newcomer("e", 0);
  h.vote("a", epoch(1), 0);
  h.vote("c", epoch(2), 0, kPending);
  h.vote("d", epoch(2), 0, kPending);
  EXPECT_EQ(h.story(), (Lines{"c < Answer 0 are_peers_pending ok pending",
                              "d < Answer 0 are_peers_pending ok pending"}));
  h.vote("c", epoch(2), 1);
  h.vote("d", epoch(2), 1);
  EXPECT_EQ(h.story(), (Lines{"c < Answer 1 update_topology ok", "d < Answer 1 update_topology ok",
                              "persist", "a < EpochStart 1.3 [a e] joined [e] left [b]",
                              "e < EpochStart 1.3 [a e] joined [e] left [b]"}));
}

TEST_F(JointTest, AGroupThatWaitsForNewcomersDoesNotHoldUpTheOthers) {
  kill("b", "a", 1);
  h.vote("a", epoch(1), 0);
  h.vote("c", epoch(2), 0);
  h.story();
  h.vote("d", epoch(2), 0);
  EXPECT_EQ(h.story(),
            (Lines{"c < Answer 0 update_topology ok", "d < Answer 0 update_topology ok"}));
  h.vote("c", epoch(2), 1);
  h.vote("d", epoch(2), 1);
  EXPECT_EQ(h.story(),
            (Lines{"c < Answer 1 update_topology ok", "d < Answer 1 update_topology ok"}));
  h.say("a", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(h.story(), (Lines{"a < Answer 0 update_topology too few peers"}));
}

TEST_F(JointTest, GroupsAtDifferentCallsDoNotWaitForEachOtherForEver) {
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  h.vote("c", epoch(2), 0, kPending);
  EXPECT_EQ(h.take(), Lines{});
  h.vote("d", epoch(2), 0, kPending);
  EXPECT_EQ(h.take(), (Lines{"c < Answer 0 are_peers_pending ok pending",
                             "d < Answer 0 are_peers_pending ok pending"}))
      << "an update is waiting for them";
  h.vote("c", epoch(2), 1);
  h.vote("d", epoch(2), 1);
  EXPECT_EQ(h.take().size(), 4u);
}

TEST_F(JointTest, ATimeoutEndsTheOneBallotAndNamesTheMissingOfAllGroups) {
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  h.vote("c", epoch(2), 0);
  h.say("a", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(h.take(), (Lines{"a < Answer 0 update_topology operation timeout",
                             "b < Answer 0 update_topology operation timeout",
                             "c < Answer 0 update_topology operation timeout"}));
  EXPECT_EQ(h.last<protocol::Answer>("a")->text,
            "timed out: it waited for peer group 1: rank 1, which has not called anything since it "
            "was admitted, 0 ms ago");
  h.vote("d", epoch(2), 0);
  EXPECT_EQ(h.take(), (Lines{"d < Answer 0 update_topology operation timeout"}));
}

TEST_F(JointTest, AGroupThatDidNotCallIsMissingAsAWhole) {
  h.vote("c", epoch(2), 0, kPending);
  h.vote("d", epoch(2), 0, kPending);
  h.say("d", protocol::JointAbort{0, epoch(2)});
  EXPECT_EQ(h.last<protocol::Answer>("c")->text,
            "timed out: it waited for peer group 0: rank 0, which has not called anything since it "
            "was admitted, 0 ms ago; for rank 1, which has not called anything since it was "
            "admitted, 0 ms ago");
}

}  // namespace
}  // namespace pccl::master
