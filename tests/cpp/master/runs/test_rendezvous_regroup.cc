#include "tests/cpp/master/runs/rendezvous_test.h"

namespace pccl::master {
namespace {

// The processes 1, 2 and 3 have met, and are the ranks 0, 1 and 2 of the run of process 1.
class RegroupTest : public RendezvousTest {
 protected:
  void SetUp() override {
    RendezvousTest::SetUp();
    call(7, handles({1, 2, 3}));
    for (uint32_t rank = 0; rank < 3; ++rank) arrive(11 + rank, 7, handles({1, 2, 3}), rank);
    note(meets.begun(run));
    over();
    take();
  }
  static Handles next(const std::vector<int>& processes) {
    Handles out;
    for (const int process : processes) out.push_back(handle(process, 2));
    return out;
  }
  // The member with this rank, on the connection that it has.
  void offer(uint32_t member, int64_t uuid, const Handles& list, uint32_t rank,
             const std::string& refusal = {}, Instant until = kNever) {
    note(meets.offer({11 + member}, run, member, {uuid, list, rank, refusal}, until));
  }
  const std::string run = Rendezvous::run_name(group_of(1), 7);
};

TEST_F(RegroupTest, AllMembersKeepTheirConnections) {
  offer(1, 8, next({1, 3, 2}), 2);
  EXPECT_EQ(take(), Lines{}) << "it waits for the call of the host";
  call(8, next({1, 3, 2}));
  offer(0, 8, next({1, 3, 2}), 0);
  EXPECT_EQ(take(), Lines{});
  offer(2, 8, next({1, 3, 2}), 1);
  EXPECT_EQ(take(), (Lines{"regroup 11 13 12"}));
  EXPECT_EQ(invited, std::set<uint32_t>());
  meets.regrouped(run, true);
  over();
  call(9, {handle(1, 3), handle(3, 3)});
  note(meets.offer({11}, run, 0, {9, {handle(1, 3), handle(3, 3)}, 0}, kNever));
  note(meets.offer({13}, run, 1, {9, {handle(1, 3), handle(3, 3)}, 1}, kNever));
  EXPECT_EQ(take(), (Lines{"regroup 11 13"})) << "the ranks are those of the last regroup";
}

TEST_F(RegroupTest, OneWithAHelloSendsTheOthersToTheDoor) {
  call(8, next({1, 2, 3}));
  offer(0, 8, next({1, 2, 3}), 0);
  offer(1, 8, next({1, 2, 3}), 1);
  arrive(23, 8, next({1, 2, 3}), 2);
  EXPECT_EQ(take(), (Lines{"to the door 11", "to the door 12", "admit 23"}));
  arrive(21, 8, next({1, 2, 3}), 0);
  arrive(22, 8, next({1, 2, 3}), 1);
  EXPECT_EQ(take(), (Lines{"admit 21", "admit 22"}));
}

TEST_F(RegroupTest, InvitationsFollowOnlyIfSomebodyIsMissing) {
  call(8, next({1, 2, 3}));
  EXPECT_EQ(invited, std::set<uint32_t>());
  offer(0, 8, next({1, 2, 3}), 0);
  ASSERT_TRUE(meets.deadline());
  EXPECT_EQ(meets.deadline()->since_start, Rendezvous::kPatience);
  note(meets.expire(Instant{Rendezvous::kPatience}));
  EXPECT_EQ(invited, (std::set<uint32_t>{1, 2}));
  EXPECT_EQ(take(), Lines{});
}

TEST_F(RegroupTest, AHelloSendsTheInvitationsAtOnce) {
  call(8, next({1, 2, 3}));
  arrive(23, 8, next({1, 2, 3}), 2);
  EXPECT_EQ(invited, (std::set<uint32_t>{1, 2}));
  EXPECT_EQ(take(), (Lines{"admit 23"}));
}

TEST_F(RegroupTest, AListWithAnotherProcessFoundsARun) {
  Handles list = next({1, 2});
  list.push_back(handle(4));
  call(8, list);
  offer(1, 8, list, 1);
  EXPECT_EQ(take(), (Lines{"to the door 12"}));
}

TEST_F(RegroupTest, NobodyOffersForAnother) {
  call(8, next({1, 2, 3}));
  note(meets.offer({12}, run, 1, {8, next({1, 2, 3}), 2}, kNever));
  note(meets.offer({12}, "reconfigure another 7", 1, {8, next({1, 2, 3}), 1}, kNever));
  note(meets.offer({12}, run, 3, {8, next({1, 2, 3}), 1}, kNever));
  note(meets.offer({12}, run, 1, {8, {}, 1}, kNever));
  EXPECT_EQ(take(), Lines(4, "to the door 12"));
}

TEST_F(RegroupTest, TheLossOfAMemberThatHasComeEndsTheCall) {
  call(8, next({1, 2, 3}));
  offer(0, 8, next({1, 2, 3}), 0);
  offer(1, 8, next({1, 2, 3}), 1);
  note(meets.closed({12}));
  EXPECT_EQ(take(), Lines{}) << "its master may know the reason";
  unreachable(1, "connection reset");
  const std::string why =
      "reconfigure (uuid 8): rank 1, 10.0.0.2:4000 (group 000000), was lost meanwhile";
  EXPECT_EQ(take(), (Lines{"refuse 11: " + why, "end: " + why}));
}

TEST_F(RegroupTest, AMemberMayGiveUpItsCall) {
  call(8, next({1, 2, 3}));
  offer(0, 8, next({1, 2, 3}), 0);
  offer(1, 8, next({1, 2, 3}), 1);
  offer(1, 8, next({1, 2, 3}), 1, "it has given up the call");
  const std::string why =
      "reconfigure (uuid 8): rank 1, 10.0.0.2:4000 (group 000000), refuses it: it has given up the "
      "call";
  EXPECT_EQ(take(), (Lines{"refuse 11: " + why, "end: " + why, "refuse 12: " + why}));
}

TEST_F(RegroupTest, AMemberMayGiveUpBeforeTheHostHasCalled) {
  offer(1, 8, next({1, 2, 3}), 1);
  offer(1, 8, next({1, 2, 3}), 1, "it has given up the call");
  EXPECT_EQ(take().size(), 1);
  call(8, next({1, 2, 3}));
  EXPECT_EQ(take().size(), 1) << "it ends at once, for all";
}

TEST_F(RegroupTest, TheTimeoutOfTheFirstEndsItAndNamesWhoIsMissing) {
  call(8, next({1, 2, 3}));
  offer(0, 8, next({1, 2, 3}), 0);
  offer(1, 8, next({1, 2, 3}), 1, {}, clock_at(3));
  note(meets.expire(clock_at(3)));
  const std::string why =
      "reconfigure (uuid 8): timed out: it waited for rank 2 (10.0.0.3:4000 (group 000000))";
  EXPECT_EQ(take(), (Lines{"refuse 11: " + why, "refuse 12: " + why, "end: " + why}));
}

TEST_F(RegroupTest, AfterALossInTheRunTheNextOneFoundsARun) {
  call(8, next({1, 2, 3}));
  for (uint32_t rank = 0; rank < 3; ++rank) offer(rank, 8, next({1, 2, 3}), rank);
  take();
  meets.regrouped(run, false);
  over(protocol::Reject{Code::kPeerLost, "lost"});
  call(9, {handle(1, 3), handle(2, 3)});
  note(meets.offer({12}, run, 1, {9, {handle(1, 3), handle(2, 3)}, 1}, kNever));
  EXPECT_EQ(take(), (Lines{"to the door 12"}));
}

TEST_F(RegroupTest, AMemberThatWaitsForARunThatIsReplacedComesAgain) {
  offer(1, 9, next({1, 2}), 1);
  call(8, next({1, 2, 3}));
  EXPECT_EQ(take().size(), 1) << "the two calls end each other";
}

}  // namespace
}  // namespace pccl::master
