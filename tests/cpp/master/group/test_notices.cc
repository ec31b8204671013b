#include "master/group/notices.h"

#include "master/context.h"
#include "master/text_format.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::LinkState;

struct NoticesTest : testing::Test {
  Harness h;
};

TEST_F(NoticesTest, AnUnreachablePeerLearnsWhy) {
  h.found({"a"});
  h.enlist("b", Harness::hello(1));
  h.take();
  h.take_log();
  const protocol::LinkReport report{
      h.id("b"), LinkState::kUnreachable, "10.0.0.1:1002: timed out", 0, 0, LinkFault::kNoAnswer};
  h.say("a", report);
  EXPECT_EQ(h.take(), (Lines{"b < Dial a 10.0.0.1:1001"})) << "the other side tries, too";
  const std::string why =
      "peer 1.1 (rank 0, 10.0.0.1:1001) cannot connect to peer 1.2 (10.0.0.1:1002): no "
      "answer; peer 1.2 cannot connect to peer 1.1: connection refused" +
      kWhatToOpen;
  const protocol::LinkReport back{h.id("a"), LinkState::kUnreachable, "10.0.0.1:1001: refused", 0,
                                  0,         LinkFault::kRefused};
  h.say("b", back);
  EXPECT_EQ(h.take(), (Lines{"b < Notice " + why,
                             "a < Notice a newcomer cannot be admitted: peer 1.2 (10.0.0.1:1002) "
                             "cannot connect to peer 1.1 (rank 0, 10.0.0.1:1001): connection "
                             "refused; peer 1.1 cannot connect to peer 1.2: no answer" +
                                 kWhatToOpen}))
      << "what a member finds in its network is not for strangers";
  const std::string logged =
      "peer 1.1 (rank 0, 10.0.0.1:1001) cannot reach peer 1.2 (10.0.0.1:1002): 10.0.0.1:1002: "
      "timed out";
  EXPECT_EQ(h.take_log()[0], logged);
  h.say("a", report);
  EXPECT_EQ(h.take(), Lines{}) << "said before";
  EXPECT_EQ(h.take_log(), Lines{});
  h.tick_with({"a", "b"}, 20);
  const std::string refused = "peer 1.2 (10.0.0.1:1002) is no longer waited for: " + why;
  EXPECT_EQ(h.story(), (Lines{"b < Kicked " + refused, "b closed", "a < Notice refused: " + why}));
}

// A stranger names the address of somebody else, and reports that it cannot reach a itself. The
// member a fails there after some ticks.
struct Probed {
  int ticks = 0;  // until the Notice
  std::string notice, log, events;
};
Probed probed(LinkFault fault, int failed_after) {
  Harness h;
  h.found({"a"}, 0, 1);
  h.accept("b", "1.2.3.4");
  h.say("b", Harness::hello(1));
  h.say("b", protocol::Register{"5.6.7.8", 22});
  h.say("b", protocol::LinkReport{h.id("a"), LinkState::kUnreachable, "", 0});
  Probed found;
  while (h.last<protocol::Notice>("b") == nullptr && found.ticks < 40) {
    if (found.ticks == failed_after)
      h.say("a", protocol::LinkReport{h.id("b"), LinkState::kUnreachable, "words", 0, 0, fault});
    h.tick_with({"a", "b"});
    ++found.ticks;
  }
  found.notice = h.last<protocol::Notice>("b")->text;
  for (const std::string& line : h.take_log()) found.log += line + "\n";
  for (const auto& event : h.core().view().context.history.events())
    found.events += event.text + "\n";
  EXPECT_NE(h.last<protocol::Notice>("a")->text.find(fault_text(fault)), std::string::npos);
  return found;
}

TEST_F(NoticesTest, AStrangerLearnsNothingAboutAnAddressOfSomebodyElse) {
  const Probed refused = probed(LinkFault::kRefused, 0), silent = probed(LinkFault::kNoAnswer, 10);
  EXPECT_EQ(refused.ticks, silent.ticks);
  EXPECT_EQ(refused.notice, silent.notice);
  EXPECT_TRUE(contains(refused.notice, "cannot connect to peer 1.2 (5.6.7.8:22) (its log has"));
  EXPECT_TRUE(contains(refused.log, "(5.6.7.8:22): connection refused")) << refused.log;
  EXPECT_TRUE(contains(refused.log, "cannot reach peer 1.2 (5.6.7.8:22): words")) << refused.log;
  // Everybody can observe a run without tokens.
  EXPECT_EQ(refused.events, silent.events);
  EXPECT_TRUE(contains(refused.events, "is not admitted yet: ")) << refused.events;
}

protocol::OpInfo called_at(const std::string& site, uint64_t count = 8) {
  protocol::OpInfo info = all_reduce(count);
  info.site = site;
  return info;
}

TEST_F(NoticesTest, CallsOfOneShapeAtDifferentLinesAreReportedOnce) {
  h.found({"a", "b"});
  const auto call = [this](uint32_t number, const protocol::OpInfo& a, const protocol::OpInfo& b) {
    h.say("a", protocol::Begin{epoch(1), op(number), a});
    h.say("b", protocol::Begin{epoch(1), op(number), b});
    return h.take();
  };
  h.take();
  EXPECT_EQ(call(0, called_at("x.py:1"), called_at("x.py:1")), Lines{});
  EXPECT_EQ(call(1, called_at("x.py:1"), called_at("")), Lines{}) << "one of them does not look";
  h.take_log();
  const std::string text =
      "rank 0 called all_reduce(sum, float32, 8 elements, world size 2) (#2) in epoch 1.1 at "
      "x.py:1, and rank 1 at x.py:2. The shapes are equal, so the call goes on. If the ranks make "
      "these calls in different orders, give each line a tag of its own (pccl.tag)";
  EXPECT_EQ(call(2, called_at("x.py:1"), called_at("x.py:2")),
            (Lines{"a < Notice " + text, "b < Notice " + text}));
  EXPECT_EQ(h.take_log(), (Lines{text}));
  EXPECT_EQ(call(3, called_at("x.py:2"), called_at("x.py:1")), Lines{}) << "the same pair";
  EXPECT_EQ(call(4, called_at("x.py:1"), called_at("x.py:3")).size(), 2u);
  const protocol::OpInfo send = transfer(h.id("a"), h.id("b"), 8);
  protocol::OpInfo sent = send, received = send;
  sent.site = "x.py:5", received.site = "x.py:6";
  EXPECT_EQ(call(5, sent, received), Lines{}) << "a send and its recv are two lines";
}

TEST_F(NoticesTest, PairsOfLinesBeyondTheBoundAreNotReported) {
  h.found({"a", "b"});
  h.take();
  size_t reported = 0;
  for (uint32_t number = 0; number < 300; ++number) {
    h.say("a", protocol::Begin{epoch(1), op(number), called_at("x.py:1")});
    h.say("b",
          protocol::Begin{epoch(1), op(number), called_at("x.py:" + std::to_string(2 + number))});
    for (const char* name : {"a", "b"}) h.say(name, protocol::Done{epoch(1), op(number)});
    for (const std::string& line : h.take()) reported += line.starts_with("a < Notice");
  }
  EXPECT_EQ(reported, 256u);
}

TEST_F(NoticesTest, ALongWaitIsExplained) {
  h.enlist("a", Harness::hello(2));
  h.take();
  h.tick_with({"a"}, 19);
  EXPECT_EQ(h.story(), Lines{});
  h.tick_with({"a"}, 1);
  EXPECT_EQ(h.story(),
            (Lines{"a < Notice this peer is alone: 1 of the 2 peers that begin together has come. "
                   "Start 1 more with the same master and run"}));
}

// Their attempts to connect may fail only after the time when they would learn that they wait.
TEST_F(NoticesTest, FoundersThatCannotReachEachOtherLearnTheReasonAlone) {
  h.enlist("a", Harness::hello(2));
  h.enlist("b", Harness::hello(2));
  h.take();
  h.tick_with({"a", "b"}, 21);
  EXPECT_EQ(h.story(), Lines{}) << "the reason will be here soon";
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kUnreachable, "refused", 0, 0,
                                  LinkFault::kRefused});
  h.say("b", protocol::LinkReport{h.id("a"), LinkState::kUnreachable, "refused", 0, 0,
                                  LinkFault::kRefused});
  const Lines story = h.story();
  ASSERT_EQ(story.size(), 2u);
  for (const std::string& line : story) {
    EXPECT_TRUE(contains(line, "cannot connect to")) << line;
    EXPECT_TRUE(line.ends_with(kWhatToOpen)) << line;
  }
}

TEST_F(NoticesTest, AReasonThatDoesNotComeIsNotAwaitedForLong) {
  h.enlist("a", Harness::hello(2));
  h.enlist("b", Harness::hello(2));
  h.take();
  h.tick_with({"a", "b"}, 39);
  EXPECT_EQ(h.story(), Lines{});
  h.tick_with({"a", "b"}, 1);
  ASSERT_EQ(h.last<protocol::Notice>("a")->text,
            "2 peers have come, and 1 of the 2 peers that begin together can reach each other so "
            "far");
}

// A program that never calls update_topology lets a newcomer wait for ever.
TEST_F(NoticesTest, MembersLearnOnceOfEachNewcomerThatWaitsForTheirCall) {
  const std::string waits =
      " waits to be admitted: all members have to call pccl.update_topology()";
  h.found({"a", "b"});
  h.enlist("c", Harness::hello(2));
  h.link_all();
  h.take();
  h.tick_with({"a", "b", "c"}, 4);
  h.vote("b", epoch(1), 0);
  h.tick_with({"a", "b", "c"}, 15);
  EXPECT_EQ(h.last<protocol::Notice>("a"), nullptr);
  h.tick_with({"a", "b", "c"}, 1);
  ASSERT_NE(h.last<protocol::Notice>("a"), nullptr);
  EXPECT_EQ(h.last<protocol::Notice>("a")->text, "peer 1.3 (10.0.0.1:1003)" + waits);
  EXPECT_EQ(h.last<protocol::Notice>("b"), nullptr) << "it has called it";
  h.enlist("d", Harness::hello(2));
  h.link_all();
  h.take();
  h.tick_with({"a", "b", "c", "d"}, 60);
  std::vector<std::string> told;
  for (const std::string& line : h.story()) {
    if (line.starts_with("a < Notice ") && contains(line, waits)) told.push_back(line);
  }
  EXPECT_EQ(told, (Lines{"a < Notice peer 1.4 (10.0.0.1:1004)" + waits}));
}

}  // namespace
}  // namespace pccl::master
