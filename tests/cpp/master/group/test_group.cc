#include "master/group/group.h"

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::JointKind;
using protocol::LinkState;
using protocol::OpState;

class GroupTest : public testing::Test {
 protected:
  void kill(const std::string& name, const std::string& witness) {
    h.close(name);
    h.say(witness, protocol::LinkReport{h.id(name), LinkState::kDown, "reset", 1});
  }
  void report(const std::string& name, uint32_t in_epoch = 1) {
    h.say(name, protocol::StateReport{epoch(in_epoch), {}});
  }
  Harness h;
};

// ---- Links ----

// No peer may make members dial their own machine, or all machines of a network.
TEST_F(GroupTest, AnAddressThatIsNotOneMachinesIsNotPassedOn) {
  h.found({"a", "b"});
  h.greet("c", Harness::hello(2));
  h.take();
  h.say("c",
        protocol::Register{"", 1003, {{"127.0.0.1", 22}, {"10.0.0.8", 1003}, {"224.0.0.1", 1}}});
  const std::vector<Endpoint> left = {{"10.0.0.8", 1003}};
  EXPECT_EQ(h.last<protocol::Dial>("a")->others, left);
  EXPECT_EQ(h.last<protocol::Dial>("b")->others, left);
  for (const Endpoint& at : {Endpoint{"10.0.0.9", 0}, Endpoint{"a.example", 1}}) {
    h.greet("c", Harness::hello(2));
    h.take();
    h.say("c", protocol::Register{"", 1003, {{"10.0.0.8", 1003}, at}});
    EXPECT_EQ(h.take(), (Lines{"c closed"})) << text(at);
  }
}

TEST_F(GroupTest, AHostThatWouldLeadMembersToTheirOwnMachineIsRefused) {
  h.found({"a"}, 0, 1);
  h.greet("b", Harness::hello(1));
  h.take();
  h.say("b", protocol::Register{"127.0.0.1", 22});
  const std::string why =
      "this peer advertises 127.0.0.1, a loopback address, and the master sees "
      "it at 10.0.0.1: the others would not reach this peer there. Set "
      "PCCL_ADVERTISE to an address or a name at which they reach it, or unset "
      "it";
  EXPECT_EQ(h.last<protocol::Reject>("b")->code, Code::kInvalidArgument);
  EXPECT_EQ(h.last<protocol::Reject>("b")->text, why);
  const Lines lines = h.take();
  ASSERT_GE(lines.size(), 2u);
  EXPECT_TRUE(lines[0].starts_with("b < Reject")) << lines[0];
  EXPECT_EQ(lines[1], "b closed");
  EXPECT_EQ(h.last<protocol::Dial>("a"), nullptr);
  ASSERT_EQ(h.core().view().context.history.refusals().size(), 1u);
  EXPECT_TRUE(h.core().view().context.history.refusals()[0].text.ends_with(why));
  h.accept("c", "127.0.0.1", true);
  h.say("c", Harness::hello(1));
  h.say("c", protocol::Register{"::1", 1003});
  EXPECT_EQ(h.last<protocol::Reject>("c"), nullptr) << "it is on the machine of the master";
  EXPECT_EQ(h.last<protocol::Dial>("a")->host, "") << "and is not dialled at ::1 from another one";
}

// Between two members a new link is not enough, because data on the old link is lost.
TEST_F(GroupTest, ALinkBetweenMembersThatIsMadeAnewRenewsTheEpoch) {
  h.found({"a", "b"});
  h.say("b", protocol::LinkReport{h.id("a"), LinkState::kDown, "reset", 1});
  EXPECT_EQ(h.take(), (Lines{"b < Dial a 10.0.0.1:1001"}));
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kUp, "", 2});
  EXPECT_EQ(h.story(), (Lines{"a < FreezeRequest lost []", "b < FreezeRequest lost []"}));
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kUp, "", 2});
  EXPECT_EQ(h.story(), Lines{}) << "it was up";
  h.vote("a", epoch(1), 0, protocol::JointKind::kArePeersPending);
  report("a"), report("b");
  EXPECT_EQ(h.last<protocol::EpochEnd>("a")->continuation, protocol::Continuation::kEverything);
  const auto start = h.last<protocol::EpochStart>("b");
  EXPECT_EQ(start->epoch, epoch(2));
  EXPECT_EQ(start->generation, epoch(1));
  EXPECT_EQ(start->members.size(), 2u);
  h.take();
  // The vote from before is void, and it is cast again in the new epoch.
  h.vote("b", epoch(2), 0, protocol::JointKind::kArePeersPending);
  EXPECT_EQ(h.story(), Lines{});
  h.vote("a", epoch(2), 0, protocol::JointKind::kArePeersPending);
  EXPECT_EQ(h.story().size(), 2u);
}

TEST_F(GroupTest, FoundersMayBeMoreThanAGroupNeedsToGoOn) {
  protocol::Hello hello = Harness::hello(1);
  hello.founders = 3;
  h.enlist("a", hello);
  h.enlist("b", hello);
  h.link_all();
  EXPECT_FALSE(contains(h.story().back(), "EpochStart")) << "two of three";
  h.enlist("c", hello);
  h.link_all();
  EXPECT_TRUE(contains(h.story().back(), "EpochStart"));
  h.say("b", protocol::Leave{});
  h.say("c", protocol::Leave{});
  h.say("a", protocol::StateReport{epoch(1), {}});
  h.take();
  h.vote("a", epoch(1), 0);
  EXPECT_TRUE(contains(h.story().back(), "a < EpochStart"));
}

// ---- update_topology ----

TEST_F(GroupTest, NothingToUpdateIsAnsweredAndOperationsRunOn) {
  h.found({"a", "b"});
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.vote("a", epoch(1), 0);
  EXPECT_EQ(h.take(), Lines{});
  h.vote("b", epoch(1), 0);
  EXPECT_EQ(h.take(),
            (Lines{"a < Answer 0 update_topology ok", "b < Answer 0 update_topology ok"}));
  h.say("b", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.say("a", protocol::Done{epoch(1), op(0), 0});
  h.say("b", protocol::Done{epoch(1), op(0), 0});
  EXPECT_EQ(h.take(), (Lines{"a < Verdicts 0: #0 committed", "b < Verdicts 0: #0 committed"}));
}

TEST_F(GroupTest, ANewcomerIsAdmittedWhenWhatRunsIsDone) {
  h.found({"a", "b"});
  h.enlist("c", Harness::hello(2));
  h.link_all();
  for (const char* name : {"a", "b"}) h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.say("a", protocol::Begin{epoch(1), op(1), all_reduce(8)});
  h.take();
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  EXPECT_EQ(h.take(), (Lines{"a < Verdicts 0: #1 membership changed",
                             "b < Verdicts 0: #1 membership changed"}));
  h.say("a", protocol::Done{epoch(1), op(0), 1});
  h.say("b", protocol::Done{epoch(1), op(0), 1});
  EXPECT_EQ(h.take(),
            (Lines{"a < Verdicts 1: #0 committed", "b < Verdicts 1: #0 committed", "persist",
                   "a < EpochStart 1.2 [a b c] joined [c]", "b < EpochStart 1.2 [a b c] joined [c]",
                   "c < EpochStart 1.2 [a b c] joined [c]"}));
  // Repeated after a reconnection, before the EpochStart arrived.
  h.vote("b", epoch(1), 0);
  h.say("b", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(h.take(), Lines{});
  h.vote("b", epoch(2), 0);
}

TEST_F(GroupTest, AfterItsVoteAPeerPostsNothing) {
  h.found({"a", "b"});
  h.vote("a", epoch(1), 0);
  h.say("a", protocol::Begin{epoch(1), op(0), all_reduce(8)});
  EXPECT_EQ(h.take(), (Lines{"a closed"}));
}

TEST_F(GroupTest, UpdatingNeverFailsBecauseOfALoss) {
  h.found({"a", "b", "c"});
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  h.take();
  kill("c", "a");
  report("a");
  report("b");
  EXPECT_EQ(h.story(),
            (Lines{"a < FreezeRequest lost [c]", "b < FreezeRequest lost [c]", "persist",
                   "a < EpochEnd 1.1 committed none", "b < EpochEnd 1.1 committed none"}));
  // Two are left, but min_peers is three. The call waits until the timeout of one member ends.
  h.say("b", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(h.story(), (Lines{"a < Answer 0 update_topology too few peers",
                              "b < Answer 0 update_topology too few peers"}));
  EXPECT_EQ(h.last<protocol::Answer>("a")->text,
            "peer group 0 has 2 members left, min_peers is 3, and no newcomer can be admitted: "
            "start more peers and call it again");
  h.vote("a", epoch(1), 1);
  h.vote("b", epoch(1), 1);
  h.enlist("d", Harness::hello(3));
  h.link_all();
  EXPECT_EQ(h.story(),
            (Lines{"d < Welcome", "persist", "a < EpochStart 1.2 [a b d] joined [d] left [c]",
                   "b < EpochStart 1.2 [a b d] joined [d] left [c]",
                   "d < EpochStart 1.2 [a b d] joined [d] left [c]"}));
}

// A timeout that comes while a plan is being recorded is void, because the EpochStart is coming. It
// counts if the plan is given up.
TEST_F(GroupTest, PatienceThatEndsDuringAPlanThatIsGivenUpHasEnded) {
  h.found({"a", "b", "c"});
  kill("c", "a");
  report("a");
  report("b");
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  h.enlist("d", Harness::hello(3));
  h.hold_persists = true;
  h.link_all();
  h.story();
  EXPECT_EQ(h.held(), 1u);
  h.say("b", protocol::JointAbort{0, epoch(1)});
  h.close("d");
  EXPECT_EQ(h.story(), (Lines{"persist"}));
  h.release();
  EXPECT_EQ(h.story(), (Lines{"a < Answer 0 update_topology too few peers",
                              "b < Answer 0 update_topology too few peers"}));
}

TEST_F(GroupTest, ACallThatSomebodyDoesNotMakeEndsAtItsTimeout) {
  h.found({"a", "b", "c"});
  h.vote("a", epoch(1), 0);
  h.say("c", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(h.take(), Lines{}) << "it has not called it";
  h.say("a", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(h.take(), (Lines{"a < Answer 0 update_topology operation timeout"}));
  EXPECT_EQ(h.last<protocol::Answer>("a")->text,
            "timed out: it waited for rank 1, which has not called anything since it was admitted, "
            "0 ms ago; for rank 2, which has not called anything since it was admitted, 0 ms ago");
  h.vote("b", epoch(1), 0);
  EXPECT_EQ(h.take(), (Lines{"b < Answer 0 update_topology operation timeout"}))
      << "the same answer";
}

TEST_F(GroupTest, AChangeThatWaitsForOperationsCanBeGivenUp) {
  h.found({"a", "b"});
  h.enlist("c", Harness::hello(2));
  h.link_all();
  for (const char* name : {"a", "b"}) h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(8)});
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0);
  h.take();
  h.say("a", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(h.take(), (Lines{"a < Answer 0 update_topology operation timeout",
                             "b < Answer 0 update_topology operation timeout"}));
  EXPECT_TRUE(contains(h.last<protocol::Answer>("a")->text, "1 operation is in flight"));
  h.say("a", protocol::Done{epoch(1), op(0), 0});
  h.say("b", protocol::Done{epoch(1), op(0), 0});
  EXPECT_EQ(h.take(), (Lines{"a < Verdicts 0: #0 committed", "b < Verdicts 0: #0 committed"}));
}

// ---- Kinds of joint calls ----

TEST_F(GroupTest, DifferentCallsUnderOneNumberFailForAll) {
  h.found({"a", "b", "c"});
  h.vote("a", epoch(1), 0);
  h.vote("b", epoch(1), 0, kPending);
  EXPECT_EQ(h.take(), (Lines{"a < Answer 0 update_topology collective mismatch",
                             "b < Answer 0 are_peers_pending collective mismatch"}));
  h.vote("c", epoch(1), 0);
  EXPECT_EQ(h.take(), (Lines{"c < Answer 0 update_topology collective mismatch"}));
}

TEST_F(GroupTest, PendingIsTheSameForAll) {
  h.found({"a", "b"});
  h.vote("a", epoch(1), 0, kPending);
  h.vote("b", epoch(1), 0, kPending);
  EXPECT_EQ(h.take(),
            (Lines{"a < Answer 0 are_peers_pending ok", "b < Answer 0 are_peers_pending ok"}));
  h.vote("a", epoch(1), 1, kPending);
  h.enlist("c", Harness::hello(2));
  h.link_all();
  h.take();
  h.vote("b", epoch(1), 1, kPending);
  EXPECT_EQ(h.take(), (Lines{"a < Answer 1 are_peers_pending ok pending",
                             "b < Answer 1 are_peers_pending ok pending"}));
}

// The answer comes once the loss is durable. A master that is killed earlier takes the lost member
// back, and that member would then be at an older ballot than the others.
TEST_F(GroupTest, AfterALossPendingGoesOnAmongThoseWhoAllCalledIt) {
  h.found({"a", "b", "c"});
  h.vote("a", epoch(1), 0, kPending);
  h.vote("b", epoch(1), 0, kPending);
  h.hold_persists = true;
  kill("c", "a");
  report("a");
  report("b");
  EXPECT_EQ(h.story(),
            (Lines{"a < FreezeRequest lost [c]", "b < FreezeRequest lost [c]", "persist"}));
  h.release();
  EXPECT_EQ(h.story(), (Lines{"a < EpochEnd 1.1 committed none", "b < EpochEnd 1.1 committed none",
                              "a < Answer 0 are_peers_pending ok pending",
                              "b < Answer 0 are_peers_pending ok pending"}));
}

TEST_F(GroupTest, AfterALossEverythingElseFailsAlike) {
  h.found({"a", "b", "c"});
  h.vote("a", epoch(1), 0, kPending);
  kill("c", "a");
  report("a");
  report("b");
  EXPECT_EQ(h.story(), (Lines{"a < FreezeRequest lost [c]", "b < FreezeRequest lost [c]", "persist",
                              "a < EpochEnd 1.1 committed none", "b < EpochEnd 1.1 committed none",
                              "a < Answer 0 are_peers_pending peer lost"}));
  // Sent before the EpochEnd arrived.
  h.vote("b", epoch(1), 0, kSync, offer(1, {1}));
  EXPECT_EQ(h.story(), (Lines{"b < Answer 0 sync_shared_state peer lost"}));
  EXPECT_EQ(h.last<protocol::Answer>("b")->text,
            "peer 1.3 (rank 2, 10.0.0.1:1003) lost: its process ended or its network broke; "
            "2 members are left, and min_peers is 3");
}

TEST_F(GroupTest, InABrokenGroupNumbersNeedNotMatch) {
  h.found({"a", "b", "c"});
  h.vote("a", epoch(1), 0, kSync, offer(1, {1}));
  kill("c", "a");
  report("a");
  report("b");
  h.story();
  h.enlist("d", Harness::hello(3));
  h.link_all();
  h.vote("a", epoch(1), 1);
  h.story();
  h.vote("b", epoch(1), 0);
  EXPECT_EQ(h.story(), (Lines{"persist", "a < EpochStart 1.2 [a b d] joined [d] left [c]",
                              "b < EpochStart 1.2 [a b d] joined [d] left [c]",
                              "d < EpochStart 1.2 [a b d] joined [d] left [c]"}));
}

// ---- Shared state ----

TEST_F(GroupTest, SharedStateIsElectedFetchedAndRecorded) {
  h.found({"a", "b", "c"});
  h.hold_persists = true;
  h.vote("a", epoch(1), 0, kSync, offer(4, {1, 2}));
  h.vote("b", epoch(1), 0, kSync, offer(4, {1, 2}));
  EXPECT_EQ(h.take(), Lines{});
  h.vote("c", epoch(1), 0, kSync, offer(0, {0, 2}, kReceive));
  EXPECT_EQ(h.take(), (Lines{"a < SyncPlan: a b > c: 0", "b < SyncPlan: a b > c: 0",
                             "c < SyncPlan: a b > c: 0"}));
  h.say("c", protocol::Fetched{0, Code::kOk, ""});
  EXPECT_EQ(h.take(), (Lines{"persist"}));
  h.say("a", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(h.take(), Lines{}) << "it is agreed on";
  h.release();
  EXPECT_EQ(h.take(), (Lines{"a < Answer 0 sync_shared_state ok revision 4",
                             "b < Answer 0 sync_shared_state ok revision 4",
                             "c < Answer 0 sync_shared_state ok revision 4"}));
}

TEST_F(GroupTest, AMemberWithoutTheStateIsNamed) {
  h.found({"a", "b", "c"});
  h.vote("a", epoch(1), 0, kSync, offer(4, {1}));
  h.vote("b", epoch(1), 0, kSync, offer(0, {0}, kReceive));
  h.vote("c", epoch(1), 0, kSync, offer(0, {0}, kReceive));
  h.say("b", protocol::Fetched{0, Code::kOk, ""});
  h.take();
  h.say("a", protocol::JointAbort{0, epoch(1)});
  EXPECT_EQ(h.last<protocol::Answer>("b")->text,
            "timed out: rank 2 did not receive the whole state");
  EXPECT_EQ(h.take().size(), 3u);
}

TEST_F(GroupTest, ALossFailsTheSyncButNotWhatWasAgreedOn) {
  h.found({"a", "b", "c"});
  h.hold_persists = true;
  for (const char* name : {"a", "b", "c"}) h.vote(name, epoch(1), 0, kSync, offer(4, {1}));
  kill("c", "a");
  report("a");
  report("b");
  EXPECT_EQ(h.story(),
            (Lines{"persist", "a < FreezeRequest lost [c]", "b < FreezeRequest lost [c]"}));
  h.release();  // first the agreed state, then the end of the epoch
  EXPECT_EQ(h.story(),
            (Lines{"a < Answer 0 sync_shared_state ok revision 4",
                   "b < Answer 0 sync_shared_state ok revision 4", "persist",
                   "a < EpochEnd 1.1 committed none", "b < EpochEnd 1.1 committed none"}));
}

TEST_F(GroupTest, TheRecordOutlivesItsMembers) {
  h.found({"a"});
  h.vote("a", epoch(1), 0, kSync, offer(4, {1}));
  h.say("a", protocol::Leave{});
  EXPECT_TRUE(h.core().view().is_idle());
  EXPECT_EQ(h.core().view().shared_states().size(), 1u) << "there is a record to remember";
  h.enlist("b", Harness::hello(2));
  h.enlist("c", Harness::hello(2));
  h.link_all();
  h.take();
  h.vote("b", epoch(2), 0, kSync, offer(0, {9}));
  h.vote("c", epoch(2), 0, kSync, offer(0, {9}));
  EXPECT_EQ(h.take(), (Lines{"b < Answer 0 sync_shared_state shared state",
                             "c < Answer 0 sync_shared_state shared state"}));
  h.vote("b", epoch(2), 1, kSync, offer(5, {9}));
  h.vote("c", epoch(2), 1, kSync, offer(5, {9}));
  EXPECT_EQ(h.take(), (Lines{"persist", "b < Answer 1 sync_shared_state ok revision 5",
                             "c < Answer 1 sync_shared_state ok revision 5"}));
}

// "c" takes each step with other bits. The offers have digests alone.
TEST_F(GroupTest, AMemberThatDriftsIsNamedInTheLog) {
  h.found({"a", "b", "c"});
  for (uint32_t number = 0; number < 5; ++number) {
    h.vote("a", epoch(1), number, kSync, unlisted(offer(number, {5, 1})));
    h.vote("b", epoch(1), number, kSync, unlisted(offer(number, {5, 1})));
    h.vote("c", epoch(1), number, kSync, unlisted(offer(number, {6, 1})));
    h.say("a", protocol::StateList{number, epoch(1), offer(number, {5, 1}).entries});
    h.say("c", protocol::StateList{number, epoch(1), offer(number, {6, 1}).entries});
    h.say("c", protocol::Fetched{number, Code::kOk, ""});
  }
  const Lines warnings = h.warnings();
  ASSERT_EQ(warnings.size(), 3u) << "after the first, the second and the fourth correction";
  EXPECT_TRUE(contains(warnings[0], "rank 2 drifts: ")) << warnings[0];
  EXPECT_TRUE(contains(warnings[0], "\"k0\" (24 bytes) at revision 1 (1 correction so far)"))
      << warnings[0];
  EXPECT_TRUE(contains(warnings[2], "at revision 4 (4 corrections so far)")) << warnings[2];
  const GroupView& view = h.core().view().group_of(h.id("c"))->view();
  ASSERT_EQ(view.agreement.drifts().all().size(), 1u);
  EXPECT_EQ(view.agreement.drifts().all().at(h.id("c")).count, 4u);
}

TEST_F(GroupTest, DigestsThatAreAlikeNeedNoLists) {
  h.found({"a", "b"});
  h.vote("a", epoch(1), 0, kSync, unlisted(offer(1, {5})));
  h.vote("b", epoch(1), 0, kSync, unlisted(offer(1, {5})));
  EXPECT_EQ(h.take(), (Lines{"persist", "a < Answer 0 sync_shared_state ok revision 1",
                             "b < Answer 0 sync_shared_state ok revision 1"}));
}

TEST_F(GroupTest, ListsAreAskedForIfDigestsDiffer) {
  h.found({"a", "b", "c"});
  h.vote("a", epoch(1), 0, kSync, unlisted(offer(1, {5})));
  h.vote("b", epoch(1), 0, kSync, unlisted(offer(0, {6})));
  h.vote("c", epoch(1), 0, kSync, unlisted(offer(1, {5})));
  ASSERT_NE(h.last<protocol::ListRequest>("a"), nullptr);
  ASSERT_NE(h.last<protocol::ListRequest>("b"), nullptr);
  EXPECT_EQ(h.last<protocol::ListRequest>("c"), nullptr);
  h.close("a");
  h.come_back("a", h.resume("a", epoch(1)));
  ASSERT_NE(h.last<protocol::ListRequest>("a"), nullptr) << "it may not have arrived";
  h.say("a", protocol::StateList{0, epoch(1), offer(1, {5}).entries});
  h.say("b", protocol::StateList{0, epoch(1), offer(0, {6}).entries});
  ASSERT_NE(h.last<protocol::SyncPlan>("c"), nullptr);
  EXPECT_EQ(h.last<protocol::SyncPlan>("c")->receivers, std::vector{h.id("b")});
  h.say("b", protocol::StateList{0, epoch(1), {}});  // nobody waits for it
  h.say("b", protocol::Fetched{0, Code::kOk, ""});
  EXPECT_EQ(h.last<protocol::Answer>("a")->code, Code::kOk);
}

TEST_F(GroupTest, AWrongListIsForbidden) {
  h.found({"a", "b"});
  h.vote("a", epoch(1), 0, kSync, unlisted(offer(1, {5})));
  h.vote("b", epoch(1), 0, kSync, unlisted(offer(1, {6})));
  h.take();
  h.say("b", protocol::StateList{0, epoch(1), offer(1, {7}).entries});
  EXPECT_EQ(h.take(), (Lines{"b closed"}));
}

TEST_F(GroupTest, AnOfferThatIsNotSortedIsForbidden) {
  h.found({"a"});
  protocol::Offer odd = offer(1, {1, 2});
  std::swap(odd.entries[0], odd.entries[1]);
  h.vote("a", epoch(1), 0, kSync, odd);
  EXPECT_EQ(h.take(), (Lines{"a closed"}));
}

// ---- Losses ----

TEST_F(GroupTest, AMemberThatLeavesIsLostAtOnce) {
  h.found({"a", "b"});
  h.say("b", protocol::Leave{});
  report("a");
  EXPECT_EQ(h.take(), (Lines{"b closed", "a < Forget b", "a < FreezeRequest lost [b]", "persist",
                             "a < EpochEnd 1.1 committed none"}));
  EXPECT_EQ(h.last<protocol::EpochEnd>("a")->text,
            "peer 1.2 (rank 1, 10.0.0.1:1002) lost: it left; 1 member is left, and min_peers is 2");
  h.say("a", protocol::Leave{});
  EXPECT_EQ(h.take(), (Lines{"a closed", "persist"}));
  EXPECT_TRUE(h.core().view().is_idle());
}

TEST_F(GroupTest, OneEndOfADeadLinkIsRemovedAndLearnsWhy) {
  h.found({"a", "b", "c"});
  h.say("b", protocol::LinkReport{h.id("c"), LinkState::kDown, "no route", 1});
  h.tick_with({"a", "b", "c"}, 9);
  EXPECT_EQ(h.story(), Lines{});
  h.tick_with({"a", "b", "c"}, 1);
  EXPECT_EQ(h.story(),
            (Lines{"c < Kicked peer 1.3 (rank 2, 10.0.0.1:1003) lost: the link between it and "
                   "peer 1.2 (rank 1, 10.0.0.1:1002) is down: no route",
                   "c closed", "a < FreezeRequest lost [c]", "b < FreezeRequest lost [c]"}));
}

TEST_F(GroupTest, TwoLostInOneTickAreNamedTogether) {
  h.found({"a", "b", "c"});
  h.tick_with({"a"}, 20);
  const Lines story = h.story();
  ASSERT_EQ(story.size(), 5u);
  EXPECT_TRUE(contains(story[0], "b < Kicked")) << story[0];
  EXPECT_EQ(story.back(), "a < FreezeRequest lost [b c]");
  report("a");
  EXPECT_EQ(h.last<protocol::EpochEnd>("a")->text,
            "peer 1.2 (rank 1, 10.0.0.1:1002) lost: it was silent for 10 s; "
            "peer 1.3 (rank 2, 10.0.0.1:1003) lost: it was silent for 10 s; "
            "1 member is left, and min_peers is 3");
}

}  // namespace
}  // namespace pccl::master
