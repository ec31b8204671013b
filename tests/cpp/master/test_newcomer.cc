#include "master/newcomer.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using std::chrono::milliseconds;
constexpr Duration kLimit = std::chrono::seconds(2);

// A clock that always goes on by the least time between two looks.
struct ProbationTest : testing::Test {
  // Looks until this much time has passed. Returns what it said first, and when in `said_at`.
  std::vector<Misfit> run(Duration time, const std::string& awaited, const std::string& elsewhere) {
    const Instant until = now + time;
    while (now < until) {
      now = now + Probation::kLookAgain;
      EXPECT_TRUE(probation.due(now));
      const auto found = probation.look({{kA, awaited, elsewhere}}, kLimit, now);
      if (!found.empty()) return found;
    }
    return {};
  }
  Probation probation;
  Instant now;
};

TEST_F(ProbationTest, WhomNobodyWaitsForHasAllTheTimeThereIs) {
  EXPECT_TRUE(run(10 * kLimit, "", "").empty());
  EXPECT_FALSE(probation.deadline());
}

TEST_F(ProbationTest, TimeCountsFromWhenSomebodyWaits) {
  EXPECT_TRUE(run(kLimit, "", "").empty());
  const Instant start = now + Probation::kLookAgain;
  const auto found = run(2 * kLimit, "sync_shared_state", "");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].peer, kA);
  EXPECT_EQ(found[0].why, "it did not call sync_shared_state within 2 s (PCCL_FIRST_CALL_TIMEOUT)");
  EXPECT_EQ(now, start + kLimit + Probation::kLookAgain) << "the second look that finds it so";
}

TEST_F(ProbationTest, ACallEndsTheWait) {
  EXPECT_TRUE(run(kLimit - milliseconds(100), "a", "").empty());
  EXPECT_TRUE(run(Probation::kLookAgain, "", "").empty());
  EXPECT_TRUE(run(kLimit - milliseconds(100), "b", "").empty());
}

TEST_F(ProbationTest, WhoWaitsElsewhereIsFoundSoon) {
  const Instant start = now;
  const auto found = run(kLimit, "sync_shared_state", "barrier (#0)");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].why, "it called barrier (#0), and the others sync_shared_state");
  EXPECT_LE(now - start, Probation::kElsewhereMax + 3 * Probation::kLookAgain);
}

TEST_F(ProbationTest, ACallElsewhereThatIsFollowedByTheRightOneIsNoMistake) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(run(Probation::kElsewhereMax, "sync_shared_state", "barrier (#0)").empty());
    EXPECT_TRUE(run(Probation::kLookAgain, "", "").empty());
  }
}

TEST_F(ProbationTest, LooksAreRareAndNoneIsForgotten) {
  EXPECT_TRUE(probation.due(now));
  probation.look({{kA, "a", ""}}, kLimit, now);
  EXPECT_EQ(probation.deadline(), now + kLimit);
  const Instant soon = now + milliseconds(1);
  EXPECT_FALSE(probation.due(soon)) << "something has happened, and is looked at later";
  EXPECT_EQ(probation.deadline(), now + Probation::kLookAgain);
  EXPECT_TRUE(probation.due(now + Probation::kLookAgain));
}

TEST_F(ProbationTest, WhoeverCouldNotBeHeardGetsAllOfItsTimeAgain) {
  EXPECT_TRUE(run(kLimit - milliseconds(100), "a", "").empty());
  probation.restart();
  EXPECT_FALSE(probation.deadline());
  EXPECT_TRUE(run(kLimit - milliseconds(100), "a", "").empty());
}

// ---- In a run ----

struct NewcomerTest : testing::Test, Harness {
  // c has just been admitted by a and b, who were compared with each other.
  void SetUp() override {
    found({"a", "b"});
    begin("a", epoch(1), 0, 7);
    begin("b", epoch(1), 0, 7);
    say("a", protocol::Done{epoch(1), op(0), 0});
    say("b", protocol::Done{epoch(1), op(0), 0});
    admit("c");
  }
  void admit(const std::string& name) {
    enlist(name, hello(2));
    link_all();
    vote("a", epoch(1), 0);
    vote("b", epoch(1), 0);
    ASSERT_TRUE(last<protocol::EpochStart>(name) != nullptr);
    take();
  }
  void begin(const std::string& name, Epoch in, uint32_t sequence, uint64_t count) {
    say(name, protocol::Begin{in, op(sequence), all_reduce(count)});
  }
  std::string kicked(const std::string& name) const {
    const auto* kicked = last<protocol::Kicked>(name);
    return kicked == nullptr ? "" : kicked->text;
  }
};

TEST_F(NewcomerTest, AnotherDigestIsItsMistakeWhoeverCallsFirst) {
  begin("c", epoch(2), 0, 8);
  begin("a", epoch(2), 0, 7);
  EXPECT_EQ(kicked("c"), "") << "b may say the same as c";
  begin("b", epoch(2), 0, 7);
  EXPECT_TRUE(contains(kicked("c"), "rank 2 called all_reduce(sum, float32, 8 elements"));
  EXPECT_TRUE(contains(kicked("c"), "ranks 0 and 1 called all_reduce(sum, float32, 7 elements"));
  EXPECT_EQ(last<protocol::Verdicts>("a")->verdicts.back().outcome, protocol::Outcome::kCommitted)
      << "of the epoch before";
}

TEST_F(NewcomerTest, ADifferenceBetweenTheOthersIsEverybodys) {
  begin("c", epoch(2), 0, 8);
  begin("a", epoch(2), 0, 7);
  begin("b", epoch(2), 0, 8);
  EXPECT_EQ(kicked("c"), "");
  EXPECT_EQ(last<protocol::Verdicts>("c")->verdicts.back().code, Code::kMismatch);
}

TEST_F(NewcomerTest, AfterOneCollectiveItIsLikeTheOthers) {
  for (const char* name : {"a", "b", "c"}) begin(name, epoch(2), 0, 7);
  for (const char* name : {"a", "b", "c"}) say(name, protocol::Done{epoch(2), op(0), 0});
  begin("c", epoch(2), 1, 8);
  begin("a", epoch(2), 1, 7);
  EXPECT_EQ(kicked("c"), "");
  EXPECT_EQ(last<protocol::Verdicts>("c")->verdicts.back().code, Code::kMismatch);
}

TEST_F(NewcomerTest, AnotherJointCallIsItsMistake) {
  vote("c", epoch(2), 0, kPending);
  vote("a", epoch(2), 0, kSync, offer(0, {1}));
  EXPECT_EQ(kicked("c"), "");
  vote("b", epoch(2), 0, kSync, offer(0, {1}));
  EXPECT_TRUE(contains(kicked("c"), "rank 2 called are_peers_pending; ranks 0 and 1 called sync"));
}

TEST_F(NewcomerTest, AStateThatCouldNotBeFetchedIsItsOwnTrouble) {
  vote("a", epoch(2), 0, kSync, offer(3, {1}));
  vote("b", epoch(2), 0, kSync, offer(3, {1}));
  vote("c", epoch(2), 0, kSync, offer(0, {2}));
  say("c", protocol::Fetched{0, Code::kSystem, "no memory left"});
  EXPECT_TRUE(contains(kicked("c"), "no memory left"));
}

TEST_F(NewcomerTest, AnOperationThatItGivesUpGoesOnWithoutIt) {
  begin("c", epoch(2), 0, 7);
  begin("a", epoch(2), 0, 7);
  say("c", protocol::AbortRequest{epoch(2), op(0), Code::kOperationTimeout, "it took too long"});
  EXPECT_TRUE(contains(kicked("c"), "it took too long"));
}

TEST_F(NewcomerTest, WhatOnlyItHasCalledItMayGiveUp) {
  begin("c", epoch(2), 0, 7);
  say("c", protocol::AbortRequest{epoch(2), op(0), Code::kOperationTimeout, "it took too long"});
  EXPECT_EQ(kicked("c"), "");
  EXPECT_EQ(last<protocol::Verdicts>("c")->verdicts.back().code, Code::kOperationTimeout);
}

TEST_F(NewcomerTest, WhoIsAwayIsNotTakenForSilent) {
  vote("a", epoch(2), 0, kSync, offer(0, {1}));
  close("c");
  tick_with({"a", "b"}, 19);
  come_back("c", resume("c", epoch(2)));
  tick_with({"a", "b", "c"}, 19);
  EXPECT_EQ(kicked("c"), "");
  tick_with({"a", "b", "c"}, 3);
  EXPECT_TRUE(contains(kicked("c"), "it did not call sync_shared_state within 10 s"));
}

TEST_F(NewcomerTest, AStopOfTheMasterExcusesIt) {
  vote("a", epoch(2), 0, kSync, offer(0, {1}));
  be_stopped(std::chrono::seconds(60));
  tick_with({"a", "b", "c"}, 15);
  EXPECT_EQ(kicked("c"), "");
}

TEST_F(NewcomerTest, ATransferBetweenTwoIsNoComparisonWithAll) {
  protocol::OpInfo send = all_reduce(1);
  send.kind = protocol::OpKind::kSend;
  send.root = id("a");
  send.receiver = id("c");
  for (const char* name : {"a", "c"}) say(name, protocol::Begin{epoch(2), op(0, "s"), send});
  say("c", protocol::Done{epoch(2), op(0, "s"), 0});
  vote("a", epoch(2), 0, kSync, offer(0, {1}));
  vote("b", epoch(2), 0, kSync, offer(0, {1}));
  vote("c", epoch(2), 0, kPending);
  EXPECT_NE(kicked("c"), "");
}

}  // namespace
}  // namespace pccl::master
