// The end of a master that a process hosts, from Draining to the last Farewell.

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::OpState;

class EndingTest : public testing::Test {
 protected:
  // The peer confirms everything that was sent to it.
  void confirm(const std::string& name, Epoch in = epoch(1)) {
    const auto* ping = h.last<protocol::Ping>(name);
    ASSERT_NE(ping, nullptr);
    h.say(name, protocol::Pong{ping->counter, 0, in});
  }
  void report(const std::string& name, std::vector<protocol::OpReport> ops = {},
              Epoch in = epoch(1)) {
    h.say(name, protocol::StateReport{in, std::move(ops)});
  }
  // The shell repeats this event whenever something has happened.
  void drain() { h.step(Draining{}); }

  Harness h;
};

TEST_F(EndingTest, ARunWithoutPeersHasNothingToSay) {
  drain();
  EXPECT_EQ(h.take(), Lines{});
  EXPECT_TRUE(h.core().view().is_settled());
  EXPECT_FALSE(h.core().deadline().has_value());
}

TEST_F(EndingTest, IsSettledWhenEverythingIsKnownToHaveArrived) {
  h.found({"a", "b"});
  EXPECT_FALSE(h.core().view().is_settled()) << "the EpochStart";
  h.tick();
  confirm("a");
  EXPECT_FALSE(h.core().view().is_settled());
  confirm("b");
  EXPECT_TRUE(h.core().view().is_settled());
  h.say("b", protocol::Leave{});
  EXPECT_FALSE(h.core().view().is_settled()) << "a is being asked";
  report("a");
  h.tick();
  confirm("a");
  EXPECT_TRUE(h.core().view().is_settled());
  h.close("a");
  EXPECT_FALSE(h.core().view().is_settled()) << "it may come back and ask";
}

TEST_F(EndingTest, TheEpochEndsThenAllAreDismissedTogether) {
  h.found({"a", "b"});
  drain();
  EXPECT_EQ(h.take(), (Lines{"a < Ping", "b < Ping", "a < FreezeRequest lost []",
                             "b < FreezeRequest lost []"}));
  report("a");
  report("b");
  EXPECT_EQ(h.take(), (Lines{"persist", "a < EpochEnd 1.1 committed none",
                             "b < EpochEnd 1.1 committed none"}));
  EXPECT_EQ(h.last<protocol::EpochEnd>("a")->continuation, protocol::Continuation::kNothing);
  drain();
  confirm("a");
  EXPECT_EQ(h.take(), (Lines{"a < Ping", "b < Ping"})) << "b may not know the end of the epoch yet";
  EXPECT_FALSE(h.core().view().is_settled());
  confirm("b");
  EXPECT_EQ(h.take(), (Lines{"a < Farewell", "a closed", "b < Farewell", "b closed", "persist"}));
  EXPECT_TRUE(h.core().view().is_settled());
  EXPECT_TRUE(h.core().view().is_idle());
}

// The process that hosts the master leaves the run first.
TEST_F(EndingTest, ALossThatIsUnderWayIsTheEndOfTheEpoch) {
  h.found({"a", "b", "c"});
  h.say("a", protocol::Leave{});
  drain();
  report("b");
  report("c");
  EXPECT_TRUE(h.last<protocol::EpochEnd>("b")->lost.empty())
      << "the end of the master matters more";
  EXPECT_EQ(h.last<protocol::EpochEnd>("b")->text, protocol::kFarewellText);
  drain();
  confirm("b");
  h.take();
  confirm("c");
  EXPECT_EQ(h.take(), (Lines{"b < Farewell", "b closed", "c < Farewell", "c closed", "persist"}));
}

// Members that are far apart can commit an operation without the master. So it is decided, by the
// rule after a loss, what became of each before the master ends.
TEST_F(EndingTest, OperationsInFlightAreDecided) {
  h.found({"a", "b"});
  for (const char* name : {"a", "b"}) {
    for (uint32_t sequence : {0u, 1u}) {
      h.say(name, protocol::Begin{epoch(1), op(sequence), all_reduce(8)});
    }
  }
  drain();
  report("a", {{op(0), OpState::kDone}, {op(1), OpState::kDone}});
  report("b", {{op(0), OpState::kDone}, {op(1), OpState::kNotDone}});
  EXPECT_EQ(h.last<protocol::EpochEnd>("a")->committed, std::vector{op(0)});
  EXPECT_EQ(h.last<protocol::EpochEnd>("a")->text, protocol::kFarewellText);
}

TEST_F(EndingTest, NoEpochBeginsAnyMore) {
  h.found({"a", "b", "c"});
  h.enlist("d", Harness::hello(3));
  h.link_all();
  for (const char* name : {"a", "b"}) h.vote(name, epoch(1), 0);
  drain();
  h.vote("c", epoch(1), 0);  // it crossed the freeze request
  for (const char* name : {"a", "b", "c"}) report(name);
  drain();
  for (const char* name : {"a", "b", "c"}) confirm(name);
  h.take();
  confirm("d", {});
  EXPECT_EQ(h.take(), (Lines{"a < Farewell", "a closed", "b < Farewell", "b closed", "c < Farewell",
                             "c closed", "d < Farewell", "d closed", "persist"}));
  EXPECT_EQ(h.last<protocol::EpochStart>("a")->epoch, epoch(1));
}

TEST_F(EndingTest, AnEpochThatIsAboutToBeginEndsAtOnce) {
  h.hold_persists = true;
  for (const char* name : {"a", "b"}) h.enlist(name, Harness::hello(2));
  h.link_all();
  drain();
  h.take();
  h.hold_persists = false;
  h.release();
  const Lines lines = h.story();
  EXPECT_EQ(lines,
            (Lines{"a < EpochStart 1.1 [a b] joined [a b]", "b < EpochStart 1.1 [a b] joined [a b]",
                   "a < FreezeRequest lost []", "b < FreezeRequest lost []"}));
}

TEST_F(EndingTest, NobodyIsAdmittedAnyMore) {
  h.found({"a", "b"});
  drain();
  h.take();
  h.greet("c", Harness::hello(2));
  EXPECT_EQ(h.take(),
            (Lines{std::string("c < Reject master lost: ") + protocol::kFarewellText, "c closed"}));
}

TEST_F(EndingTest, AMemberThatIsAwayIsWaitedFor) {
  h.found({"a", "b"});
  h.close("b");
  drain();
  report("a");
  drain();
  confirm("a");
  EXPECT_FALSE(h.core().view().is_settled());
  h.take();
  h.come_back("b", h.resume("b", epoch(1)));
  EXPECT_EQ(h.story(), (Lines{"b < Resumed", "b < FreezeRequest lost []"}));
  report("b");
  drain();
  confirm("a");
  h.take();
  confirm("b");
  EXPECT_EQ(h.take(), (Lines{"a < Farewell", "a closed", "b < Farewell", "b closed", "persist"}));
}

TEST_F(EndingTest, AMemberThatMissedTheFarewellLearnsItWhenItComesBack) {
  h.found({"a", "b"});
  drain();
  for (const char* name : {"a", "b"}) report(name);
  drain();
  for (const char* name : {"a", "b"}) confirm(name);
  h.take();
  protocol::Resume resume = h.resume("b", epoch(1));
  resume.ended = true;
  h.come_back("b", resume);
  EXPECT_EQ(h.take(),
            (Lines{std::string("b < Reject master lost: ") + protocol::kFarewellText, "b closed"}));
}

}  // namespace
}  // namespace pccl::master
