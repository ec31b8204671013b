#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

struct NewcomerTest : testing::Test, Harness {
  // c was just admitted by a and b, which have been compared with each other.
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
  void admit_d() {
    enlist("d", hello(2));
    link_all();
    for (const char* name : {"a", "b", "c"}) vote(name, epoch(2), 0);
    ASSERT_TRUE(last<protocol::EpochStart>("d") != nullptr);
    take();
  }
  void begin(const std::string& name, Epoch in, uint32_t sequence, uint64_t count) {
    say(name, protocol::Begin{in, op(sequence), all_reduce(count)});
  }
  // c lacks the state.
  void all_sync() {
    vote("a", epoch(2), 0, kSync, offer(3, {1}));
    vote("b", epoch(2), 0, kSync, offer(3, {1}));
    vote("c", epoch(2), 0, kSync, offer(0, {2}));
  }
  void fetch_slowly() {
    for (int i = 0; i < 3; ++i) {
      tick_with({"a", "b", "c"}, 15);
      say("c", protocol::Fetching{0});
    }
  }
  // c is lost. a has given up the call, and says so again.
  void members_sync_again() {
    for (const char* name : {"a", "b"}) say(name, protocol::StateReport{epoch(2), {}});
    vote("a", epoch(3), 0, kSync, offer(3, {1}));
    if (contains(kicked("c"), "the timeout of the others"))
      say("a", protocol::JointAbort{0, epoch(3)});
    vote("b", epoch(3), 0, kSync, offer(3, {1}));
    for (const char* name : {"a", "b"}) {
      const auto* answer = last<protocol::Answer>(name);
      ASSERT_TRUE(answer != nullptr && answer->kind == kSync) << name;
      EXPECT_EQ(answer->code, Code::kOk) << answer->text;
      EXPECT_EQ(answer->revision, 3u);
    }
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

// The master asked c to abort, because a is done and does not want to wait any longer.
TEST_F(NewcomerTest, AgreeingToAbortWhatAnotherHasGivenUpIsNoMistake) {
  for (const char* name : {"a", "b", "c"}) begin(name, epoch(2), 0, 7);
  say("a", protocol::Done{epoch(2), op(0), 0});
  say("a", protocol::AbortRequest{epoch(2), op(0), Code::kOperationTimeout, "it took too long"});
  ASSERT_TRUE(last<protocol::AbortProposal>("c") != nullptr);
  say("c", protocol::AbortRequest{epoch(2), op(0), Code::kOperationTimeout, "it took too long"});
  EXPECT_EQ(kicked("c"), "");
  EXPECT_EQ(last<protocol::Verdicts>("c")->verdicts.back().code, Code::kOperationTimeout);
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

TEST_F(NewcomerTest, AListThatIsNotThatOfItsOfferIsItsMistake) {
  vote("a", epoch(2), 0, kSync, offer(3, {1}));
  vote("b", epoch(2), 0, kSync, offer(3, {1}));
  vote("c", epoch(2), 0, kSync, unlisted(offer(0, {2})));
  ASSERT_NE(last<protocol::ListRequest>("c"), nullptr);
  EXPECT_EQ(last<protocol::ListRequest>("a"), nullptr) << "its list came with the vote";
  say("c", protocol::StateList{0, epoch(2), offer(0, {9}).entries});
  EXPECT_TRUE(contains(kicked("c"), "not the one that it has offered"));
}

TEST_F(NewcomerTest, AListThatDoesNotComeIsItsMistake) {
  vote("a", epoch(2), 0, kSync, offer(3, {1}));
  vote("b", epoch(2), 0, kSync, offer(3, {1}));
  vote("c", epoch(2), 0, kSync, unlisted(offer(0, {2})));
  tick_with({"a", "b", "c"}, 25);
  EXPECT_TRUE(contains(kicked("c"), "sync_shared_state with the list of its entries within 10 s"));
}

TEST_F(NewcomerTest, AMemberThatGivesUpAListGoesOnWithoutIt) {
  vote("a", epoch(2), 0, kSync, offer(3, {1}));
  vote("b", epoch(2), 0, kSync, offer(3, {1}));
  vote("c", epoch(2), 0, kSync, unlisted(offer(0, {2})));
  say("a", protocol::JointAbort{0, epoch(2)});
  EXPECT_TRUE(contains(kicked("c"), "it did not send the list of entries within the timeout of"))
      << kicked("c");
  members_sync_again();
}

TEST_F(NewcomerTest, AMembersListIsNotGivenUpForANewcomers) {
  vote("a", epoch(2), 0, kSync, offer(3, {1}));
  vote("b", epoch(2), 0, kSync, unlisted(offer(2, {5})));
  vote("c", epoch(2), 0, kSync, unlisted(offer(0, {2})));
  say("a", protocol::JointAbort{0, epoch(2)});
  EXPECT_EQ(kicked("c"), "");
  EXPECT_TRUE(
      contains(last<protocol::Answer>("a")->text, "ranks 1 and 2 did not send the list of entries"))
      << last<protocol::Answer>("a")->text;
}

// Nobody has a state that the group has agreed on. c takes part in a collective while it fetches.
TEST_F(NewcomerTest, AFailedDownloadLeavesItNewToTheState) {
  vote("a", epoch(2), 0, kSync, offer(3, {1}));
  vote("b", epoch(2), 0, kSync, offer(2, {5}));
  vote("c", epoch(2), 0, kSync, offer(0, {2}));
  for (const char* name : {"a", "b", "c"}) begin(name, epoch(2), 0, 7);
  for (const char* name : {"a", "b", "c"}) say(name, protocol::Done{epoch(2), op(0), 0});
  say("a", protocol::JointAbort{0, epoch(2)});
  ASSERT_EQ(last<protocol::Answer>("c")->code, Code::kOperationTimeout);
  vote("a", epoch(2), 1, kSync, offer(3, {1}));
  vote("b", epoch(2), 1, kSync, offer(3, {1}));
  vote("c", epoch(2), 1, kSync, offer(4, {2}));
  EXPECT_TRUE(contains(kicked("c"), "cannot bring a later one")) << kicked("c");
}

TEST_F(NewcomerTest, ASourceThatCannotGoOnIsNotItsMistake) {
  all_sync();
  say("a", protocol::Fetched{0, Code::kSystem, "rank 0: no memory left"});
  EXPECT_EQ(kicked("c"), "");
  EXPECT_TRUE(contains(last<protocol::Answer>("c")->text, "rank 0: no memory left"));
}

TEST_F(NewcomerTest, WithFewerKeysItFetchesTheOthers) {
  protocol::Offer fewer = offer(0, {}, kReceive);
  fewer.partial = true;
  vote("a", epoch(2), 0, kSync, offer(3, {1, 2}));
  vote("b", epoch(2), 0, kSync, unlisted(offer(3, {1, 2})));
  vote("c", epoch(2), 0, kSync, fewer);
  ASSERT_NE(last<protocol::SyncPlan>("c"), nullptr);
  EXPECT_EQ(last<protocol::SyncPlan>("c")->keys, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(last<protocol::SyncPlan>("c")->sources, (std::vector{id("a"), id("b")}));
  say("c", protocol::Fetched{0, Code::kOk, ""});
  EXPECT_EQ(last<protocol::Answer>("c")->code, Code::kOk);
}

TEST_F(NewcomerTest, AKeyThatTheOthersLackIsItsMistake) {
  protocol::Offer odd = offer(0, {1, 2}, kReceive);
  odd.partial = true;
  vote("a", epoch(2), 0, kSync, offer(3, {1}));
  vote("b", epoch(2), 0, kSync, offer(3, {1}));
  vote("c", epoch(2), 0, kSync, odd);
  EXPECT_TRUE(contains(kicked("c"), "\"k1\" is float32[2, 3] at the newcomer and absent"));
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

TEST_F(NewcomerTest, WhoGivesUpADownloadGoesAlone) {
  all_sync();
  for (const char* name : {"a", "b", "c"}) begin(name, epoch(2), 0, 7);
  for (const char* name : {"a", "b", "c"}) say(name, protocol::Done{epoch(2), op(0), 0});
  say("c", protocol::JointAbort{0, epoch(2)});
  EXPECT_TRUE(contains(kicked("c"), "it gave up its first call, sync_shared_state"));
  members_sync_again();
}

TEST_F(NewcomerTest, AMemberThatGivesUpADownloadIsAnsweredWithoutIt) {
  all_sync();
  fetch_slowly();
  say("a", protocol::JointAbort{0, epoch(2)});
  EXPECT_TRUE(contains(kicked("c"), "it did not receive the whole state within the timeout of the"))
      << kicked("c");
  say("b", protocol::JointAbort{0, epoch(2)});
  members_sync_again();
}

// b lacks the state, too, and is no newcomer.
TEST_F(NewcomerTest, AMembersDownloadIsNotGivenUpForANewcomers) {
  vote("a", epoch(2), 0, kSync, offer(3, {1}));
  vote("b", epoch(2), 0, kSync, offer(2, {5}));
  vote("c", epoch(2), 0, kSync, offer(0, {2}));
  say("a", protocol::JointAbort{0, epoch(2)});
  EXPECT_EQ(kicked("c"), "");
  EXPECT_TRUE(contains(last<protocol::Answer>("a")->text, "ranks 1 and 2 did not receive"))
      << last<protocol::Answer>("a")->text;
}

TEST_F(NewcomerTest, AnOperationThatItGivesUpGoesOnWithoutIt) {
  begin("c", epoch(2), 0, 7);
  begin("a", epoch(2), 0, 7);
  say("c", protocol::AbortRequest{epoch(2), op(0), Code::kOperationTimeout, "it took too long"});
  EXPECT_TRUE(contains(kicked("c"), "it took too long"));
}

TEST_F(NewcomerTest, WhatTheOthersHaveYetToCallItDoesNotSpoilByGivingUp) {
  begin("c", epoch(2), 0, 7);
  say("c", protocol::AbortRequest{epoch(2), op(0), Code::kOperationTimeout, "it took too long"});
  EXPECT_TRUE(contains(kicked("c"), "it took too long"));
}

TEST_F(NewcomerTest, NorAJointCall) {
  vote("c", epoch(2), 0, kSync, offer(0, {1}));
  say("c", protocol::JointAbort{0, epoch(2)});
  EXPECT_TRUE(contains(kicked("c"), "it gave up its first call, sync_shared_state"));
  const auto* answer = last<protocol::Answer>("a");
  EXPECT_TRUE(answer == nullptr || answer->kind != kSync) << "nobody was answered for it";
}

TEST_F(NewcomerTest, WhatALossHasMadeMeaninglessIsNobodysMistake) {
  for (const char* name : {"a", "b", "c"}) begin(name, epoch(2), 0, 7);
  say("c", protocol::AbortRequest{epoch(2), op(0), Code::kMembershipChanged, "its root left"});
  EXPECT_EQ(kicked("c"), "");
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
TEST_F(NewcomerTest, WhoIsHeldUpByAnotherNewcomerIsNotTheOneToBlame) {
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
