#include "master/group/overdue_members.h"

#include "tests/cpp/master/group/newcomers.h"

namespace pccl::master {
namespace {

constexpr int kLate = 6;  // ticks in which a late member is removed: call_timeout is 2 s

struct LateTest : testing::Test, Harness {
  static protocol::Hello with_timeout(uint32_t founders, uint32_t min_peers, uint32_t ms) {
    protocol::Hello founder = hello(founders);
    founder.min_peers = min_peers;
    founder.settings.call_timeout = std::chrono::milliseconds(ms);
    return founder;
  }
  void found_timed(const std::vector<std::string>& names, uint32_t min_peers = 1,
                   uint32_t ms = 2000) {
    names_ = names;
    for (const std::string& name : names)
      enlist(name, with_timeout(static_cast<uint32_t>(names.size()), min_peers, ms));
    link_all();
  }
  void begin(const std::string& name, uint32_t sequence, const std::string& tag = "") {
    say(name, protocol::Begin{epoch(1), op(sequence, tag), all_reduce(8, tag)});
  }
  void pass(int ticks) {
    std::vector<std::string> alive = names_;
    std::erase_if(alive, [this](const std::string& name) { return !kicked(name).empty(); });
    tick_with(alive, ticks);
  }
  std::string kicked(const std::string& name) const {
    const auto* kicked = last<protocol::Kicked>(name);
    return kicked == nullptr ? "" : kicked->text;
  }
  // Those of the founders that were removed.
  std::string removed() const {
    std::string out;
    for (const std::string& name : names_) out += kicked(name).empty() ? "" : name;
    return out;
  }
  std::vector<std::string> names_;
};

TEST_F(LateTest, AMemberThatAllOthersWaitForIsRemoved) {
  found_timed({"a", "b", "c"});
  begin("a", 0);
  begin("b", 0);
  pass(3);
  EXPECT_EQ(removed(), "") << "it still has time";
  pass(kLate - 3);
  EXPECT_EQ(removed(), "c");
  EXPECT_TRUE(contains(kicked("c"),
                       "it was late, and the others go on without it: it did not call "
                       "all_reduce(sum, float32, 8 elements, world size 2) (#0) within 2 s "
                       "(PCCL_CALL_TIMEOUT). If a step may take longer"))
      << kicked("c");
  ASSERT_TRUE(last<protocol::FreezeRequest>("a") != nullptr) << "as after any loss";
}

TEST_F(LateTest, WithoutTheTimeoutAllWait) {
  found_timed({"a", "b", "c"}, 1, 0);
  begin("a", 0);
  begin("b", 0);
  pass(100);
  EXPECT_EQ(removed(), "");
}

TEST_F(LateTest, AJointCallCountsAsWell) {
  found_timed({"a", "b", "c"});
  vote("a", epoch(1), 0);
  vote("c", epoch(1), 0);
  pass(kLate);
  EXPECT_EQ(removed(), "b");
  EXPECT_TRUE(contains(kicked("b"), "it did not call update_topology within 2 s"));
}

// c fetches the state. The applications of a and b go on, and b hangs.
TEST_F(LateTest, AMemberThatGoesOnWhileOthersFetchCanBeLate) {
  found_timed({"a", "b", "c"});
  const auto sync = [this](const std::string& name, uint64_t hash, bool background) {
    protocol::Vote vote{0, protocol::JointKind::kSyncSharedState, offer(1, {hash}), epoch(1)};
    if (name == "c") vote.offer.strategy = protocol::SyncStrategy::kReceiveOnly;
    vote.background = background;
    say(name, vote);
  };
  for (const char* name : {"a", "b"}) sync(name, 5, true);
  sync("c", 6, true);
  ASSERT_TRUE(last<protocol::SyncPlan>("b") != nullptr);
  pass(2 * kLate);
  EXPECT_EQ(removed(), "") << "nobody waits for anybody";
  begin("a", 0);
  sync("b", 5, false);  // it waits for the end of the call
  pass(2 * kLate);
  EXPECT_EQ(removed(), "") << "b and c are in the call";
}

TEST_F(LateTest, AMemberThatHangsWhileOthersFetchIsRemoved) {
  found_timed({"a", "b", "c"});
  for (const std::string name : {"a", "b", "c"}) {
    protocol::Vote vote{0, protocol::JointKind::kSyncSharedState, offer(1, {5}), epoch(1)};
    if (name == "c") vote.offer = offer(1, {6}, protocol::SyncStrategy::kReceiveOnly);
    vote.background = true;
    say(name, vote);
  }
  begin("a", 0);
  begin("c", 0);
  pass(kLate);
  EXPECT_EQ(removed(), "b");
  EXPECT_TRUE(contains(kicked("b"), "it did not call all_reduce")) << kicked("b");
}

TEST_F(LateTest, OneOfTwoIsRemovedToo) {
  found_timed({"a", "b"});
  begin("b", 0);
  pass(kLate);
  EXPECT_EQ(removed(), "a");
}

TEST_F(LateTest, HalfOfTheMembersCannotRemoveTheOtherHalf) {
  found_timed({"a", "b", "c", "d"});
  begin("a", 0);
  begin("b", 0);
  pass(10 * kLate);
  EXPECT_EQ(removed(), "");
  begin("c", 0);
  pass(2);
  EXPECT_EQ(removed(), "") << "its time begins when most of them wait";
  pass(kLate - 2);
  EXPECT_EQ(removed(), "d");
}

TEST_F(LateTest, SeveralAreRemovedAtOnce) {
  found_timed({"a", "b", "c", "d", "e"});
  for (const char* name : {"a", "b", "d"}) begin(name, 0);
  pass(kLate);
  EXPECT_EQ(removed(), "ce");
}

// A mistake in the program, not lateness: the operations time out.
TEST_F(LateTest, MembersThatWaitForEachOtherStay) {
  found_timed({"a", "b", "c"});
  begin("a", 0, "x");
  begin("b", 0, "x");
  begin("c", 0, "y");
  pass(10 * kLate);
  EXPECT_EQ(removed(), "");
}

TEST_F(LateTest, AMemberThatWaitsForTheLateOneStays) {
  found_timed({"a", "b", "c", "d"});
  for (const char* name : {"a", "b", "c"}) begin(name, 0);
  begin("a", 1);
  begin("b", 1);
  pass(kLate);
  EXPECT_EQ(removed(), "d") << "c waits in the first one, which d has not called";
}

TEST_F(LateTest, NobodyIsRemovedIfTooFewWouldBeLeft) {
  found_timed({"a", "b", "c"}, 3);
  begin("a", 0);
  begin("b", 0);
  pass(10 * kLate);
  EXPECT_EQ(removed(), "");
}

TEST_F(LateTest, EachCallGetsTheWholeTime) {
  found_timed({"a", "b", "c"});
  for (uint32_t sequence = 0; sequence < 5; ++sequence) {
    begin("a", sequence);
    begin("b", sequence);
  }
  for (uint32_t sequence = 0; sequence < 4; ++sequence) {
    pass(3);
    begin("c", sequence);
    for (const char* name : {"a", "b", "c"}) say(name, protocol::Done{epoch(1), op(sequence), 0});
  }
  EXPECT_EQ(removed(), "");
  pass(kLate);
  EXPECT_EQ(removed(), "c");
}

TEST_F(LateTest, TheCallOfASilentMemberMayBeOnItsWay) {
  found_timed({"a", "b", "c"});
  begin("a", 0);
  begin("b", 0);
  tick_with({"a", "b"}, 2 * kLate);
  EXPECT_EQ(removed(), "");
  say("c", protocol::Ping{100, 0, {}});
  begin("c", 0);
  pass(kLate);
  EXPECT_EQ(removed(), "") << "it came at last";
}

TEST_F(LateTest, TimeWithoutAConnectionDoesNotCount) {
  found_timed({"a", "b", "c"});
  begin("a", 0);
  begin("b", 0);
  pass(3);
  close("c");
  tick_with({"a", "b"}, 2 * kLate);
  come_back("c", resume("c", epoch(1)));
  pass(3);
  EXPECT_EQ(removed(), "");
  pass(kLate - 3);
  EXPECT_EQ(removed(), "c");
}

TEST_F(LateTest, APauseOfTheMasterDoesNotCount) {
  found_timed({"a", "b", "c"});
  begin("a", 0);
  begin("b", 0);
  pass(3);
  be_stopped(std::chrono::seconds(6));
  pass(3);
  EXPECT_EQ(removed(), "");
  pass(kLate);
  EXPECT_EQ(removed(), "c");
}

// A newcomer is no witness, and has a time of its own for its first call.
TEST_F(LateTest, ANewcomerDoesNotCount) {
  found_timed({"a", "b"});
  begin("a", 0);
  begin("b", 0);
  for (const char* name : {"a", "b"}) say(name, protocol::Done{epoch(1), op(0), 0});
  enlist("c", with_timeout(2, 1, 2000));
  names_.push_back("c");
  link_all();
  vote("a", epoch(1), 0);
  vote("b", epoch(1), 0);
  ASSERT_TRUE(last<protocol::EpochStart>("c") != nullptr);
  say("a", protocol::Begin{epoch(2), op(0), all_reduce(8)});
  pass(kLate);
  EXPECT_EQ(removed(), "b") << "the only other one that is no newcomer";
}

TEST_F(LateTest, WhileAStateIsFetchedNobodyIsLate) {
  found_timed({"a", "b", "c"});
  for (const char* name : {"a", "b"}) vote(name, epoch(1), 0, kSync, offer(0, {1}));
  vote("c", epoch(1), 0, kSync, offer(0, {2}));
  begin("a", 0);
  begin("b", 0);
  pass(10 * kLate);
  EXPECT_EQ(removed(), "") << "c has the same call to end as a and b";
}

TEST_F(LateTest, TheTimeoutSurvivesARestart) {
  found_timed({"a", "b", "c"});
  restart();
  for (const char* name : {"a", "b", "c"}) come_back(name, resume(name, epoch(1)));
  greet("d", with_timeout(3, 1, 700));
  EXPECT_TRUE(contains(last<protocol::Reject>("d")->text,
                       "call_timeout is 700 ms here and 2 s in this run"));
  begin("a", 0);
  begin("b", 0);
  pass(kLate);
  EXPECT_EQ(removed(), "c");
}

TEST_F(LateTest, TheRestIsBoundedByTheLastOfThem) {
  found_timed({"a", "b", "c"});
  begin("a", 0);
  begin("b", 0);
  pass(kLate);
  EXPECT_EQ(removed(), "c");
  for (const char* name : {"a", "b"})
    say(name, protocol::StateReport{epoch(1), {{op(0), protocol::OpState::kNotDone}}});
  vote("a", epoch(1), 0);
  pass(kLate);
  EXPECT_EQ(removed(), "bc") << "which does not call update_topology";
  pass(10 * kLate);
  EXPECT_EQ(removed(), "bc") << "a is alone, and nobody waits for it";
}

// ---- Newcomers ----

TEST_F(NewcomerTest, AListThatDoesNotComeIsItsMistake) {
  vote("a", epoch(2), 0, kSync, offer(3, {1}));
  vote("b", epoch(2), 0, kSync, offer(3, {1}));
  vote("c", epoch(2), 0, kSync, unlisted(offer(0, {2})));
  tick_with({"a", "b", "c"}, 25);
  EXPECT_TRUE(contains(kicked("c"), "sync_shared_state with the list of its entries within 10 s"));
}

// The members have the state, and go on with the next call.
TEST_F(NewcomerTest, WhileItFetchesTheStateItIsNotMissedInTheNextCall) {
  all_sync();
  begin("a", epoch(2), 0, 7);
  begin("b", epoch(2), 0, 7);
  fetch_slowly();
  EXPECT_EQ(kicked("c"), "");
  say("c", protocol::Fetched{0, Code::kOk, ""});
  ASSERT_TRUE(last<protocol::Answer>("c") != nullptr);
  tick_with({"a", "b", "c"}, 22);
  EXPECT_EQ(kicked("c"), "") << "it is a newcomer no longer";
}

TEST_F(NewcomerTest, ADownloadThatStandsStillIsItsMistake) {
  all_sync();
  fetch_slowly();
  EXPECT_EQ(kicked("c"), "");
  tick_with({"a", "b", "c"}, 19);
  EXPECT_EQ(kicked("c"), "");
  tick_with({"a", "b", "c"}, 3);
  EXPECT_TRUE(contains(kicked("c"),
                       "in sync_shared_state nothing has reached it for 10 s "
                       "(PCCL_FIRST_CALL_TIMEOUT)"))
      << kicked("c");
  members_sync_again();
}

// Operations leave before the state, so on a slow path it may wait for them.
TEST_F(NewcomerTest, ADownloadThatWaitsForOperationsDoesNotStandStill) {
  all_sync();
  for (uint32_t sequence = 0; sequence < 3; ++sequence) {
    for (const char* name : {"a", "b", "c"}) begin(name, epoch(2), sequence, 7);
    tick_with({"a", "b", "c"}, 15);
    for (const char* name : {"a", "b", "c"}) say(name, protocol::Done{epoch(2), op(sequence), 0});
  }
  EXPECT_EQ(kicked("c"), "");
  tick_with({"a", "b", "c"}, 22);
  EXPECT_TRUE(contains(kicked("c"), "nothing has reached it for 10 s")) << kicked("c");
}

TEST_F(NewcomerTest, ItsTimeBeginsWithTheDownload) {
  vote("a", epoch(2), 0, kSync, offer(3, {1}));
  vote("b", epoch(2), 0, kSync, offer(3, {1}));
  tick_with({"a", "b", "c"}, 15);
  vote("c", epoch(2), 0, kSync, offer(0, {2}));
  tick_with({"a", "b", "c"}, 15);
  EXPECT_EQ(kicked("c"), "");
}

TEST_F(NewcomerTest, ASourceThatMayBeStoppedExcusesIt) {
  all_sync();
  tick_with({"b", "c"}, 16);
  tick_with({"a", "b", "c"}, 15);
  EXPECT_EQ(kicked("c"), "");
  tick_with({"a", "b", "c"}, 7);
  EXPECT_NE(kicked("c"), "");
}

// The others may make collectives meanwhile, and so may the newcomer.
TEST_F(NewcomerTest, ACollectiveDoesNotEndItsDownload) {
  all_sync();
  for (const char* name : {"a", "b", "c"}) begin(name, epoch(2), 0, 7);
  for (const char* name : {"a", "b", "c"}) say(name, protocol::Done{epoch(2), op(0), 0});
  tick_with({"a", "b", "c"}, 22);
  EXPECT_TRUE(contains(kicked("c"), "nothing has reached it"));
  members_sync_again();
}

TEST_F(NewcomerTest, AGroupInWhichNobodyCallsAnythingIsNotWaitedForByOthers) {
  found({"x"}, 5);
  vote("a", epoch(2), 0);
  vote("b", epoch(2), 0);
  vote("c", epoch(2), 0);
  tick_with({"a", "b", "c", "x"}, 19);
  EXPECT_EQ(kicked("x"), "");
  tick_with({"a", "b", "c", "x"}, 3);
  EXPECT_TRUE(contains(kicked("x"), "update_topology, for which peer group 0 waits, within 10 s"))
      << kicked("x");
  EXPECT_EQ(last<protocol::Answer>("a")->code, Code::kOk);
}

// d has not called the operation that c waits in. c makes a's other call when that one is over.
TEST_F(NewcomerTest, ANewcomerThatAnotherHoldsUpIsNotToBlame) {
  admit_d();
  const Epoch now = epoch(3);
  for (const char* name : {"a", "b"}) begin(name, now, 1, 7);
  for (const char* name : {"a", "b", "c"}) begin(name, now, 0, 7);
  tick_with({"a", "b", "c", "d"}, 19);
  EXPECT_EQ(kicked("d"), "");
  tick_with({"a", "b", "c", "d"}, 3);
  EXPECT_NE(kicked("d"), "");
  EXPECT_EQ(kicked("c"), "");
}

// c waits to receive from d, which calls nothing.
TEST_F(NewcomerTest, ANewcomerThatWaitsForATransferOfAnotherIsNotTheOneToBlame) {
  admit_d();
  protocol::OpInfo send = all_reduce(1);
  send.kind = protocol::OpKind::kSend;
  send.root = id("d");
  send.receiver = id("c");
  say("c", protocol::Begin{epoch(3), op(0, "s"), send});
  for (const char* name : {"a", "b"}) vote(name, epoch(3), 0, kPending);
  tick_with({"a", "b", "c", "d"}, 22);
  EXPECT_NE(kicked("d"), "");
  EXPECT_EQ(kicked("c"), "");
}

// a cannot vote, because it waits for a call that c does not make.
TEST_F(NewcomerTest, ADifferentVoteIsNoSharedCall) {
  begin("b", epoch(2), 0, 7);
  vote("b", epoch(2), 0);
  vote("c", epoch(2), 0, kPending);
  tick_with({"a", "b", "c"}, 22);
  EXPECT_TRUE(contains(kicked("c"),
                       "it did not call update_topology within 10 s (PCCL_FIRST_CALL_"
                       "TIMEOUT); it called are_peers_pending, and nobody else did"))
      << kicked("c");
}

// a waits for a send, and b in a call that c does not make either. Only c can send.
TEST_F(NewcomerTest, AReceiveFromAnySourceWaitsForIt) {
  say("a", protocol::AwaitSend{epoch(2), "t", 1});
  begin("b", epoch(2), 0, 7);
  begin("c", epoch(2), 1, 7);
  say("b", protocol::AbortRequest{epoch(2), op(0), Code::kOperationTimeout, "given up"});
  tick_with({"a", "b", "c"}, 22);
  EXPECT_EQ(kicked("c"), "") << "b may send";
  say("b", protocol::AwaitSend{epoch(2), "t", 1});
  tick_with({"a", "b", "c"}, 19);
  EXPECT_EQ(kicked("c"), "");
  tick_with({"a", "b", "c"}, 3);
  EXPECT_TRUE(contains(kicked("c"),
                       "it did not call the send for which rank 0 waits in a receive "
                       "from any rank (t) within 10 s"))
      << kicked("c");
}

TEST_F(NewcomerTest, TwoThatHoldUpEachOtherAreBothToBlame) {
  admit_d();
  for (const char* name : {"a", "b", "c"}) begin(name, epoch(3), 0, 7);
  for (const char* name : {"a", "b", "d"}) begin(name, epoch(3), 1, 7);
  tick_with({"a", "b", "c", "d"}, 22);
  EXPECT_NE(kicked("c"), "");
  EXPECT_NE(kicked("d"), "");
}

// x may wait for y, while the others wait for x.
TEST_F(NewcomerTest, NobodyOfAGroupIsRemovedWhileOneOfItIsAway) {
  found({"x", "y"}, 5);
  vote("a", epoch(2), 0);
  vote("b", epoch(2), 0);
  vote("c", epoch(2), 0);
  tick_with({"a", "b", "c", "x", "y"}, 10);
  close("y");
  tick_with({"a", "b", "c", "x"}, 19);
  EXPECT_EQ(kicked("x"), "");
}

TEST_F(NewcomerTest, AMemberThatIsAwayIsNotSilent) {
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
