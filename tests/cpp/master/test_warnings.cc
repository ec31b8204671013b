// The warnings of a master: a state that a warning begins is ended by a warning.

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

constexpr const char* kNameOfA = "peer 1.1 (rank 0, 10.0.0.1:1001)";
constexpr const char* kNameOfB = "peer 1.2 (rank 1, 10.0.0.1:1002)";

TEST(Warnings, ALossIsOverWhenTheNextEpochBegins) {
  Harness h;
  h.found({"a", "b"});
  EXPECT_EQ(h.warnings(), Lines{});
  h.tick_with({"a"}, protocol::kTicksPerTimeout);
  EXPECT_EQ(h.warnings(), (Lines{std::string(kNameOfB) + " lost: it was silent for 10 s"}));
  h.say("a", protocol::StateReport{epoch(1), {}});
  h.vote("a", epoch(1), 0);
  EXPECT_EQ(h.warnings(), Lines{}) << "one is too few";
  h.enlist("c", Harness::hello(2));
  h.link_all();
  EXPECT_EQ(h.warnings(), (Lines{"epoch 1.2 begins with 2 members: 1 joined, 1 gone"}));
}

TEST(Warnings, ALossIsOverWhenNobodyIsLeft) {
  Harness h;
  h.found({"a"});
  h.tick(protocol::kTicksPerTimeout);
  EXPECT_EQ(h.warnings(), (Lines{std::string(kNameOfA) + " lost: it was silent for 10 s",
                                 "epoch 1.1 is over: no member is left"}));
}

TEST(Warnings, AMemberThatLeavesIsNoReasonForOne) {
  Harness h;
  h.found({"a", "b"});
  h.say("b", protocol::Leave{});
  h.say("a", protocol::StateReport{epoch(1), {}});
  h.vote("a", epoch(1), 0);
  h.enlist("c", Harness::hello(2));
  h.link_all();
  EXPECT_NE(h.last<protocol::EpochStart>("a")->epoch, epoch(1));
  EXPECT_EQ(h.warnings(), Lines{});
}

TEST(Warnings, AConnectionThatIsClosedForItsFaultIsOverWhenThePeerIsBack) {
  Harness h;
  h.found({"a", "b"});
  h.say("a", protocol::Welcome{});
  EXPECT_EQ(h.warnings(), (Lines{std::string("closed the connection of ") + kNameOfA +
                                 ": Welcome from a peer that is a member"}));
  h.come_back("a", h.resume("a", epoch(1)));
  EXPECT_EQ(h.warnings(), (Lines{std::string(kNameOfA) + " is connected again"}));
  h.close("a");
  h.come_back("a", h.resume("a", epoch(1)));
  EXPECT_EQ(h.warnings(), Lines{}) << "nor was its end one";
}

// The shell closes it, and the core knows whose it is.
TEST(Warnings, AConnectionThatTheShellRefusesIsNamedByTheCore) {
  Harness h;
  h.found({"a", "b"});
  h.refuse("a", "it does not read");
  EXPECT_EQ(h.warnings(),
            (Lines{std::string("closed the connection of ") + kNameOfA + ": it does not read"}));
  h.come_back("a", h.resume("a", epoch(1)));
  EXPECT_EQ(h.warnings(), (Lines{std::string(kNameOfA) + " is connected again"}));
}

TEST(Warnings, APeerThatWaitsAndIsClosedForItsFaultIsSaidToBeGone) {
  Harness h;
  h.found({"a"});
  h.enlist("b", Harness::hello(1));
  h.refuse("b", "it does not read");
  EXPECT_EQ(h.warnings(), (Lines{"closed the connection of peer 1.2 (10.0.0.1:1002): it does not "
                                 "read"}));
  h.tick_with({"a"}, protocol::kTicksPerTimeout);
  EXPECT_EQ(h.warnings(),
            (Lines{"peer 1.2 (10.0.0.1:1002) is no longer waited for: it broke a rule: it does not "
                   "read; it did not come back within 10 s"}));
}

// The peers write these notices to their logs, as warnings.
TEST(Warnings, MembersThatWaitForMorePeersAreToldWhenTheyAreThere) {
  Harness h;
  h.found({"a", "b"});
  h.say("b", protocol::Leave{});
  h.say("a", protocol::StateReport{epoch(1), {}});
  h.vote("a", epoch(1), 0);
  h.tick_with({"a"});
  EXPECT_EQ(h.last<protocol::Notice>("a")->text,
            "update_topology waits for more peers: 1 member is left, and min_peers is 2");
  h.enlist("c", Harness::hello(2));
  h.take();
  h.link_all();
  EXPECT_EQ(h.story(), (Lines{"persist", "a < EpochStart 1.2 [a c] joined [c] left [b]",
                              "c < EpochStart 1.2 [a c] joined [c] left [b]",
                              "a < Notice update_topology goes on: enough peers are there"}));
}

TEST(Warnings, MembersThatKeepANewcomerOutAreToldWhenTheyDoNotAnyMore) {
  Harness h;
  h.found({"a"});
  h.enlist("b", Harness::hello(1));
  const auto report = [&h](const char* from, const char* to, protocol::LinkState state) {
    h.say(from, protocol::LinkReport{h.id(to), state, "no answer", 1});
  };
  report("a", "b", protocol::LinkState::kUnreachable);
  report("b", "a", protocol::LinkState::kUnreachable);
  ASSERT_NE(h.last<protocol::Notice>("a"), nullptr);
  EXPECT_TRUE(h.last<protocol::Notice>("a")->text.starts_with("a newcomer cannot be admitted: "));
  h.take();
  h.say("b", protocol::Leave{});
  h.tick_with({"a"});
  EXPECT_EQ(h.story(), (Lines{"b closed",
                              "a < Notice the newcomer that could not be admitted can be reached "
                              "now, or is gone"}));
  h.tick_with({"a"});
  EXPECT_EQ(h.story(), Lines{}) << "once";
}

TEST(Warnings, MembersThatNeverWaitedAreToldNothing) {
  Harness h;
  h.found({"a", "b"});
  h.say("b", protocol::Leave{});
  h.say("a", protocol::StateReport{epoch(1), {}});
  h.enlist("c", Harness::hello(2));
  h.link_all();
  h.vote("a", epoch(1), 0);
  EXPECT_EQ(h.last<protocol::EpochStart>("a")->epoch, epoch(2));
  EXPECT_EQ(h.last<protocol::Notice>("a"), nullptr);
}

}  // namespace
}  // namespace pccl::master
