#include "master/group/regrouping.h"

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

class RegroupingTest : public testing::Test {
 protected:
  RegroupingTest() { h.found({"a", "b", "c"}, 0, 1); }
  void begin(const std::string& name) {
    h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(8)});
  }
  void report(const std::string& name) { h.say(name, protocol::StateReport{epoch(1), {}}); }
  Harness h;
};

TEST_F(RegroupingTest, TheSameMembersHaveOtherRanksAtOnce) {
  h.regroup({"c", "a", "b"});
  EXPECT_EQ(h.story(), (Lines{"persist", "c < EpochStart 1.2 [c a b] joined []",
                              "a < EpochStart 1.2 [c a b] joined []",
                              "b < EpochStart 1.2 [c a b] joined []", "regrouped"}));
}

TEST_F(RegroupingTest, AMemberThatIsNotListedIsRemoved) {
  h.regroup({"c", "a"});
  const Lines begun = h.story();
  const std::string why =
      "b < Kicked peer 1.2 (rank 1, 10.0.0.1:1002) lost: reconfigure (uuid 7) has not listed it";
  EXPECT_EQ(begun.at(0), why);
  report("a");
  report("c");
  const Lines rest = h.story();
  EXPECT_EQ(std::count(rest.begin(), rest.end(), "c < EpochStart 1.2 [c a] joined [] left [b]"), 1);
  EXPECT_EQ(rest.back(), "regrouped");
}

TEST_F(RegroupingTest, OpenOperationsAreAborted) {
  begin("a");
  begin("b");
  h.regroup({"a", "b"});
  const Lines lines = h.story();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "b < Verdicts 0: #0 membership changed"), 1)
      << testing::PrintToString(lines);
  report("a");
  report("b");
  EXPECT_EQ(h.story().back(), "regrouped");
}

TEST_F(RegroupingTest, ALossBeforeTheBeginningIsTheReasonForAllOthers) {
  Harness far;
  far.rtt = 50'000;
  far.found({"a", "b", "c"}, 0, 1);
  for (const std::string name : {"a", "b", "c"})
    far.say(name, protocol::Begin{epoch(1), op(0), all_reduce(8)});
  far.say("a", protocol::Done{epoch(1), op(0), 0});
  far.take();
  far.regroup({"b", "c", "a"});
  EXPECT_EQ(far.story(),
            (Lines{"a < AbortProposal #0", "b < AbortProposal #0", "c < AbortProposal #0"}));
  far.close("c");
  far.say("a", protocol::LinkReport{far.id("c"), protocol::LinkState::kDown, "reset", 1});
  const Lines lines = far.story();
  const std::string why =
      " < Regrouped peer lost: reconfigure (uuid 7): peer 1.3 (rank 2, 10.0.0.1:1003) lost: its "
      "process ended or its network broke";
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "a" + why), 1) << testing::PrintToString(lines);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "b" + why), 1);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "not regrouped"), 1);
  for (const std::string name : {"a", "b"})
    far.say(name, protocol::StateReport{epoch(1), {{op(0), protocol::OpState::kNotDone}}});
  far.take();
  far.regroup({"b", "a"});
  EXPECT_EQ(far.story().back(), "regrouped") << "the group is broken, and this repairs it";
}

TEST_F(RegroupingTest, ALossWhileTheRecordBecomesDurableIsOne) {
  h.hold_persists = true;
  h.regroup({"b", "c", "a"});
  h.close("c");
  h.say("a", protocol::LinkReport{h.id("c"), protocol::LinkState::kDown, "reset", 1});
  Lines lines = h.story();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "not regrouped"), 1)
      << testing::PrintToString(lines);
  h.hold_persists = false;
  h.release();
  lines = h.story();
  EXPECT_EQ(lines.at(0).substr(0, 17), "a < FreezeRequest") << "the planned epoch has not begun";
}

TEST_F(RegroupingTest, AMemberInAnotherJointCallCannotTakePart) {
  h.vote("b", epoch(1), 0);
  h.regroup({"a", "b", "c"});
  const Lines lines = h.story();
  EXPECT_EQ(lines.at(0),
            "a < Regrouped peer lost: reconfigure (uuid 7): peer 1.2 (rank 1, 10.0.0.1:1002) is in "
            "another joint call");
  EXPECT_EQ(lines.back(), "not regrouped");
  EXPECT_EQ(lines.size(), 4);
}

TEST_F(RegroupingTest, AVoteMeanwhileBreaksARule) {
  h.hold_persists = true;
  h.regroup({"a", "b", "c"});
  h.take();
  h.vote("b", epoch(1), 0);
  EXPECT_EQ(h.take(), (Lines{"b closed"}));
}

TEST_F(RegroupingTest, AConnectionThatHasClosedHasNoMember) {
  h.close("b");
  h.take();
  h.regroup({"a", "b"});
  EXPECT_EQ(h.story(),
            (Lines{"a < Regrouped peer lost: reconfigure (uuid 7): one of its processes was lost "
                   "meanwhile",
                   "not regrouped"}));
}

}  // namespace
}  // namespace pccl::master
