#include "master/group/cycle_watch.h"

#include <gtest/gtest.h>

#include "master/group/group_view.h"
#include "master/group/groups.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::JointKind;

// Members of one group that begin operations under tags, and block.
class Cycles : public testing::Test {
 protected:
  void found(const std::vector<std::string>& names, uint32_t min_peers = 0) {
    names_ = names;
    h.rtt = 5000;  // so members agree on operations among themselves
    h.found(names, 0, min_peers);
  }
  void begin(const std::string& name, const std::string& tag,
             protocol::OpKind kind = protocol::OpKind::kAllReduce) {
    protocol::OpInfo info = all_reduce(kind == protocol::OpKind::kBarrier ? 0 : 8, tag);
    info.kind = kind;
    h.say(name, protocol::Begin{epoch(1), op(0, tag), info});
  }
  void send(const std::string& from, const std::string& to) {
    protocol::OpInfo info = all_reduce(8);
    info.kind = protocol::OpKind::kSend;
    info.root = h.id(from);
    info.receiver = h.id(to);
    h.say(from, protocol::Begin{epoch(1), op(0, from + to), info});
  }
  // The member has begun these operations and waits in them.
  void block(const std::string& name, const std::vector<std::string>& tags, bool certain = true,
             bool threads = false) {
    protocol::Blocked report{epoch(1), {}, false, certain, threads};
    for (const std::string& tag : tags) report.ops.push_back(op(0, tag));
    h.say(name, report);
  }
  void block_in_joint(const std::string& name) {
    h.say(name, protocol::Blocked{epoch(1), {}, true, true, false});
  }
  void two_wait(bool certain = true, bool threads = false) {
    begin("a", "x");
    begin("b", "y");
    block("a", {"x"}, certain, threads);
    block("b", {"y"}, certain, threads);
  }
  const GroupView& view() const { return h.core().view().groups.find(GroupId{0})->view(); }
  size_t cycles() const { return view().cycle_watch.cycles().size(); }
  void pass(int ticks) { h.tick_with(names_, ticks); }
  static Lines with(const std::string& text, const Lines& lines) {
    Lines found;
    for (const std::string& line : lines) {
      if (line.find(text) != std::string::npos) found.push_back(line);
    }
    return found;
  }
  Lines proposals() { return with("AbortProposal", h.story()); }

  mutable Harness h;
  std::vector<std::string> names_;
};

const std::string kInfo = "all_reduce(sum, float32, 8 elements, world size 2) ";
const std::string kText =
    "the ranks wait for each other: rank 0 waits in " + kInfo +
    "(x, #0) in epoch 1.1, which rank 1 has not called; rank 1 waits in " + kInfo +
    "(y, #0) in epoch 1.1, which rank 0 has not called; make the same calls in the same order on "
    "all ranks, or make all of these calls (async_op=True, isend) before the first wait()";

TEST_F(Cycles, ACycleIsAFactAtOnceAndAnErrorAfterTwoSeconds) {
  found({"a", "b"});
  begin("a", "x");
  begin("b", "y");
  block("a", {"x"});
  EXPECT_EQ(cycles(), 0u) << "rank 1 computes";
  block("b", {"y"});
  ASSERT_EQ(cycles(), 1u);
  const CycleWatch::Cycle cycle = view().cycle_watch.cycles()[0];
  EXPECT_EQ(cycle.links, (WaitCycle{{0, op(0, "x"), 1}, {1, op(0, "y"), 0}}));
  EXPECT_TRUE(cycle.certain && !cycle.threads && !cycle.due);
  pass(3);
  EXPECT_EQ(proposals(), Lines{});
  pass(1);
  EXPECT_EQ(proposals().size(), 4u) << "each member is asked about both operations";
  EXPECT_EQ(cycles(), 0u) << "the outcome is being decided";
  const auto* asked = h.last<protocol::AbortProposal>("a");
  ASSERT_NE(asked, nullptr);
  EXPECT_EQ(asked->code, Code::kMismatch);
  EXPECT_EQ(h.last<protocol::AbortProposal>("a")->text.find(kInfo), 0u);
  EXPECT_NE(asked->text.find(" cannot complete: " + kText), std::string::npos) << asked->text;
}

TEST_F(Cycles, TwoMembersThatAgreeAbortTheOperationForAll) {
  found({"a", "b", "c"});
  begin("c", "x");
  two_wait();
  pass(4);
  h.take();
  for (const char* who : {"a", "c"})
    h.say(who, protocol::AbortAnswer{epoch(1), op(0, "x"), protocol::OpState::kNotDone});
  EXPECT_EQ(h.story(), (Lines{"a < Verdicts 0: #0 collective mismatch",
                              "b < Verdicts 0: #0 collective mismatch",
                              "c < Verdicts 0: #0 collective mismatch"}));
  EXPECT_TRUE(contains(h.last<protocol::Verdicts>("c")->verdicts[0].text, kText));
}

TEST_F(Cycles, OperationsThatOnlyTheMasterCommitsAreAbortedAtOnce) {
  found({"a", "b"});
  send("a", "b");
  send("b", "a");
  block("a", {"ab"});
  block("b", {"ba"});
  pass(4);
  const Lines story = h.story();
  EXPECT_EQ(story, (Lines{"a < Verdicts 0: #0 collective mismatch #0 collective mismatch",
                          "b < Verdicts 0: #0 collective mismatch #0 collective mismatch"}));
  EXPECT_NE(h.last<protocol::Verdicts>("a")->verdicts[0].text.find("which rank 1 has not received"),
            std::string::npos);
}

TEST_F(Cycles, ABarrierCountsAlthoughItsMembersAreDone) {
  found({"a", "b"});
  begin("a", "x", protocol::OpKind::kBarrier);
  h.say("a", protocol::Done{epoch(1), op(0, "x"), 0});
  begin("b", "y", protocol::OpKind::kBarrier);
  h.say("b", protocol::Done{epoch(1), op(0, "y"), 0});
  block("a", {"x"});
  block("b", {"y"});
  h.take();
  pass(4);
  EXPECT_EQ(h.story().size(), 2u);
}

TEST_F(Cycles, ThreeMembers) {
  found({"a", "b", "c"});
  const std::vector<std::pair<std::string, std::string>> calls = {
      {"a", "x"}, {"c", "x"}, {"b", "y"}, {"a", "y"}, {"c", "z"}, {"b", "z"}};
  for (const auto& [name, tag] : calls) begin(name, tag);
  block("a", {"x"});  // rank 1 has not called it
  block("b", {"y"});  // rank 2
  EXPECT_EQ(cycles(), 0u);
  block("c", {"z"});  // rank 0
  ASSERT_EQ(cycles(), 1u);
  EXPECT_EQ(view().cycle_watch.cycles()[0].links.size(), 3u);
}

TEST_F(Cycles, AnOperationThatAllHaveBegunIsUnderWay) {
  found({"a", "b"});
  begin("a", "x");
  begin("b", "x");
  begin("b", "y");
  block("a", {"x"});
  block("b", {"y"});
  EXPECT_EQ(cycles(), 0u);
}

TEST_F(Cycles, AMemberThatContinuesEndsTheCycle) {
  found({"a", "b"});
  two_wait();
  pass(3);
  block("b", {});
  EXPECT_EQ(cycles(), 0u);
  pass(10);
  EXPECT_EQ(proposals(), Lines{});
  block("b", {"y"});
  pass(3);
  EXPECT_EQ(proposals(), Lines{}) << "it is found anew";
  pass(1);
  EXPECT_EQ(proposals().size(), 4u);
}

TEST_F(Cycles, AMemberWithoutAConnectionDoesNotBlock) {
  found({"a", "b"});
  two_wait();
  h.close("b");
  EXPECT_EQ(cycles(), 0u);
  protocol::Resume back = h.resume("b", epoch(1));
  back.ops.push_back({op(0, "y")});
  back.infos.push_back(all_reduce(8, "y"));
  h.come_back("b", back);
  EXPECT_EQ(cycles(), 0u) << "its report may have changed";
  block("b", {"y"});
  EXPECT_EQ(cycles(), 1u);
}

TEST_F(Cycles, AMemberThatIsNotCertainCausesAWarning) {
  found({"a", "b"});
  two_wait(false);
  ASSERT_EQ(cycles(), 1u);
  EXPECT_FALSE(view().cycle_watch.cycles()[0].certain);
  pass(19);
  h.story();
  h.warnings();
  pass(1);
  const Lines expected{"a < Notice " + kText, "b < Notice " + kText};
  EXPECT_EQ(with("each other", h.story()), expected);
  EXPECT_EQ(with("each other", h.warnings()), Lines{kText});
  pass(40);
  EXPECT_EQ(proposals(), Lines{});
  EXPECT_EQ(cycles(), 1u) << "it stays a fact";
}

TEST_F(Cycles, WithSeveralThreadsItTakesThePeerTimeout) {
  found({"a", "b"});
  two_wait(true, true);
  pass(19);
  EXPECT_EQ(proposals(), Lines{});
  pass(1);
  EXPECT_EQ(proposals().size(), 4u);
}

TEST_F(Cycles, AJointCallCountsWhileNobodyIsPending) {
  found({"a", "b"});
  h.vote("a", epoch(1), 0);
  block_in_joint("a");
  begin("b", "y");
  block("b", {"y"});
  ASSERT_EQ(cycles(), 1u);
  EXPECT_EQ(view().cycle_watch.cycles()[0].links[0].call, WaitedCall(JointKind::kUpdateTopology));
  h.enlist("c", Harness::hello(2));
  h.link_all();
  names_.push_back("c");
  pass(1);
  EXPECT_EQ(cycles(), 0u) << "the newcomer is the reason for the call";
}

TEST_F(Cycles, ANewcomerDoesNotBlock) {
  found({"a", "b"}, 1);
  begin("a", "t");
  begin("b", "t");
  h.say("a", protocol::Done{epoch(1), op(0, "t"), 0});
  h.say("b", protocol::Done{epoch(1), op(0, "t"), 0});
  h.enlist("c", Harness::hello(1));
  h.link_all();
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  ASSERT_TRUE(view().membership.is_member(h.id("c")));
  const Epoch second = view().present.number();
  const auto wait = [&](const std::string& name, const std::string& tag) {
    h.say(name, protocol::Begin{second, op(0, tag), all_reduce(8, tag)});
    h.say(name, protocol::Blocked{second, {op(0, tag)}, false, true, false});
  };
  wait("c", "y");
  wait("a", "x");
  EXPECT_EQ(cycles(), 0u);
  wait("b", "z");
  EXPECT_EQ(cycles(), 1u) << "two members that are no newcomers";
}

TEST_F(Cycles, AReportOfAnEarlierEpochIsIgnoredAndOneOfALaterEpochIsAViolation) {
  found({"a", "b"});
  h.say("a", protocol::Blocked{Epoch{}, {op(0)}, false, true, false});
  EXPECT_EQ(h.story(), Lines{});
  h.say("a", protocol::Blocked{epoch(9), {op(0)}, false, true, false});
  EXPECT_EQ(h.story(), Lines{"a closed"});
}

TEST_F(Cycles, AnOperationThatTheMemberHasNotBegunDoesNotBlockIt) {
  found({"a", "b"});
  begin("a", "x");
  begin("b", "y");
  block("a", {"y"});
  block("b", {"x"});
  EXPECT_EQ(cycles(), 0u);
}

TEST_F(Cycles, AfterAPauseOfTheMasterACycleHasToStandAgain) {
  found({"a", "b"});
  two_wait();
  h.be_stopped(std::chrono::seconds(6));
  h.tick();
  EXPECT_EQ(proposals(), Lines{});
  pass(4);
  EXPECT_EQ(proposals().size(), 4u);
}

}  // namespace
}  // namespace pccl::master
