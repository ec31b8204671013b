#include "master/group/state_call.h"

#include "tests/cpp/master/group/newcomers.h"

namespace pccl::master {
namespace {

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

TEST_F(NewcomerTest, ANewcomerThatGivesUpADownloadLeavesAlone) {
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

}  // namespace
}  // namespace pccl::master
