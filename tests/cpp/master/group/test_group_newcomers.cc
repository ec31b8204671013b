#include "master/group/group.h"

#include "tests/cpp/master/group/newcomers.h"

namespace pccl::master {
namespace {

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

TEST_F(NewcomerTest, AnOperationThatItGivesUpGoesOnWithoutIt) {
  begin("c", epoch(2), 0, 7);
  begin("a", epoch(2), 0, 7);
  say("c", protocol::AbortRequest{epoch(2), op(0), Code::kOperationTimeout, "it took too long"});
  EXPECT_TRUE(contains(kicked("c"), "it took too long"));
}

TEST_F(NewcomerTest, GivingUpDoesNotAbortACallThatTheOthersHaveYetToMake) {
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

TEST_F(NewcomerTest, AnAbortAfterALossIsNoMistake) {
  for (const char* name : {"a", "b", "c"}) begin(name, epoch(2), 0, 7);
  say("c", protocol::AbortRequest{epoch(2), op(0), Code::kMembershipChanged, "its root left"});
  EXPECT_EQ(kicked("c"), "");
}

}  // namespace
}  // namespace pccl::master
