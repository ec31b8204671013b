#include "master/epochs/epochs.h"

#include "tests/cpp/master/epochs/epochs_test.h"

namespace pccl::master {
namespace {

using Phase = Epochs::Phase;
using Turn = Epochs::Turn;
using protocol::OpState;

TEST_F(EpochsTest, AChangeLetsRunWhatAllHaveBegun) {
  found(2);
  begin(1, 0);
  begin(2, 0);
  begin(1, 1);
  enlist(3);
  epochs.change();
  EXPECT_EQ(advance(), Turn::kNone);
  present.flush();
  EXPECT_EQ(epochs.phase(), Phase::kDraining);
  EXPECT_EQ(said(), (Lines{"1 Verdicts", "2 Verdicts"})) << "operation 1 is over, 0 runs on";
  done(1, 0, 1);
  done(2, 0, 1);
  advance();
  EXPECT_EQ(record().previous.epoch, epoch(1));
  EXPECT_EQ(committed(record()), std::vector{op(0)});
  EXPECT_EQ(record().members.size(), 3u);
  EXPECT_EQ(said(), (Lines{"1 Verdicts", "2 Verdicts", "persist"}));
  persisted(context.tokens);
  EXPECT_EQ(said(), (Lines{"1 EpochStart", "2 EpochStart", "3 EpochStart"}));
  EXPECT_EQ(present.number(), epoch(2));
  EXPECT_FALSE(epochs.changing());
}

TEST_F(EpochsTest, WhenTheNewcomerIsGoneThereIsNothingToChange) {
  found(2);
  enlist(3);
  epochs.change();
  advance();
  EXPECT_EQ(epochs.phase(), Phase::kStarting);
  const uint64_t given_up = context.tokens;
  said();
  membership.remove(peer_id(3), "");
  epochs.waiting_gone(peer_id(3));
  EXPECT_EQ(record().current.epoch, epoch(1)) << "a restarted master must not begin with the plan";
  EXPECT_EQ(record().members.size(), 2u);
  EXPECT_EQ(said(), Lines{"persist"});
  EXPECT_EQ(persisted(given_up), Turn::kNone);
  EXPECT_EQ(advance(), Turn::kNone) << "and nothing happens before that is sure";
  EXPECT_EQ(persisted(context.tokens), Turn::kNone);
  EXPECT_EQ(epochs.phase(), Phase::kDraining);
  EXPECT_EQ(advance(), Turn::kUnchanged);
  EXPECT_EQ(epochs.phase(), Phase::kActive);
  EXPECT_EQ(present.number(), epoch(1));
}

TEST_F(EpochsTest, SurvivorsAreAskedAndWhatAllHaveFinishedCommits) {
  found(3);
  for (uint32_t number = 1; number <= 3; ++number) {
    for (uint32_t sequence = 0; sequence < 2; ++sequence) begin(number, sequence);
  }
  lose(3);
  EXPECT_TRUE(epochs.needs_reconfiguration());
  advance();
  EXPECT_EQ(said(), (Lines{"1 FreezeRequest", "2 FreezeRequest"}));
  report(1, {{op(0), OpState::kDone}, {op(1), OpState::kDone}});
  advance();
  EXPECT_EQ(epochs.waits_for(), "rank 1 did not report the operations in flight");
  EXPECT_EQ(advance(), Turn::kNone);
  report(2, {{op(0), OpState::kDone}, {op(1), OpState::kNotDone}});
  report(2, {{op(1), OpState::kDone}});  // its first report counts
  EXPECT_EQ(advance(false), Turn::kNone) << "something else is being recorded";
  EXPECT_EQ(said(), Lines{});
  advance();
  EXPECT_EQ(committed(record()), std::vector{op(0)});
  EXPECT_EQ(record().members.size(), 2u);
  EXPECT_EQ(said(), (Lines{"persist"}));
  EXPECT_EQ(persisted(context.tokens), Turn::kEnded);
  EXPECT_EQ(said(), (Lines{"1 EpochEnd", "2 EpochEnd"}));
  EXPECT_EQ(epochs.phase(), Phase::kBroken);
  EXPECT_EQ(epochs.end_status().message, "peer 3 lost; 2 members are left, and min_peers is 3");
}

TEST_F(EpochsTest, AReturnAgainstAMemberThatIsNotDoneShowsALie) {
  rtt = 50'000;
  found(4);
  for (uint32_t number = 1; number <= 4; ++number) begin(number, 0);
  lose(4);
  advance();
  report(1, {{op(0), OpState::kReturned}});
  report(2, {{op(0), OpState::kDone}});
  EXPECT_TRUE(epochs.liars().empty());
  report(3, {{op(0), OpState::kNotDone}});
  const std::vector<Misfit> liars = epochs.liars();
  ASSERT_EQ(liars.size(), 2u);
  EXPECT_EQ(liars[0].peer, peer_id(1));
  EXPECT_EQ(liars[1].peer, peer_id(3));
  EXPECT_EQ(liars[1].why,
            "the reports on all_reduce(sum, float32, 8 elements, world size 2) (#0) in epoch 1.1 "
            "contradict each other: returned by rank 0, which needs all others; not finished by "
            "rank 2");
  EXPECT_EQ(advance(), Turn::kNone);
  EXPECT_EQ(epochs.phase(), Phase::kFreezing) << "the epoch waits until they are removed";
  lose(1);
  lose(3);
  EXPECT_TRUE(epochs.liars().empty());
  advance();
  EXPECT_EQ(committed(record()), std::vector{op(0)});
}

TEST_F(EpochsTest, NoHonestMemberReportsThis) {
  found(2);
  for (uint32_t number = 1; number <= 2; ++number) begin(number, 0);
  epochs.reconfigure();
  advance();
  const auto refused = [&](OpState state, uint64_t finished) {
    const auto status = epochs.report(peer_id(1), {epoch(1), {{op(0), state, finished}}});
    EXPECT_EQ(status.code, Code::kProtocol);
    return status.message;
  };
  const std::string name = "all_reduce(sum, float32, 8 elements, world size 2) (#0) in epoch 1.1";
  EXPECT_EQ(refused(OpState::kReturned, 0),
            "it reports that it has returned " + name + " before its verdict, which it cannot");
  EXPECT_EQ(refused(OpState::kNotDone, 1),
            "it reports 1 finished elements of " + name + ", where 0 to 0 are possible");
  EXPECT_TRUE(epochs.awaits_reports());
}

TEST_F(EpochsTest, AFurtherLossIsOneReportLessToWaitFor) {
  found(3);
  for (uint32_t number = 1; number <= 3; ++number) begin(number, 0);
  lose(2);
  advance();
  report(1, {{op(0), OpState::kDone}});
  lose(3);
  advance();
  EXPECT_EQ(committed(record()), std::vector{op(0)});
  EXPECT_EQ(persisted(context.tokens), Turn::kEnded);
  EXPECT_EQ(epochs.end_status().message,
            "peer 2 lost; peer 3 lost; 1 member is left, and min_peers is 3");
}

TEST_F(EpochsTest, ALossWhileTheNewEpochIsBeingRecordedEndsTheOldOneFirst) {
  found(2);
  enlist(3);
  epochs.change();
  advance();
  said();
  lose(2);
  EXPECT_EQ(said(), Lines{"persist"}) << "that the epoch goes on, for now";
  EXPECT_EQ(persisted(context.tokens), Turn::kNone);
  EXPECT_EQ(epochs.phase(), Phase::kFreezing);
  EXPECT_TRUE(epochs.changing()) << "the votes stand";
  advance();
  EXPECT_EQ(said(), (Lines{"1 FreezeRequest"}));
  report(1, {});
  advance();
  persisted(context.tokens);
  EXPECT_EQ(epochs.phase(), Phase::kBroken);
  advance();
  EXPECT_EQ(epochs.phase(), Phase::kStarting);
  said();
  persisted(context.tokens);
  EXPECT_EQ(said(), (Lines{"1 EpochStart", "3 EpochStart"}));
  EXPECT_EQ(present.number(), epoch(3)) << "the number of the plan that was given up is not reused";
}

TEST_F(EpochsTest, ABrokenGroupWaitsForMinPeers) {
  found(2);
  lose(2);
  advance();
  report(1, {});
  advance();
  persisted(context.tokens);
  epochs.change();
  EXPECT_EQ(advance(), Turn::kNone);
  EXPECT_EQ(epochs.phase(), Phase::kBroken);
  enlist(3);
  advance();
  EXPECT_EQ(epochs.phase(), Phase::kStarting);
  lose(1);
  EXPECT_EQ(epochs.phase(), Phase::kFounding) << "nobody is left to be told";
}

// ---- Reconfiguration ----

TEST_F(EpochsTest, AReconfigurationEndsAnEpochAndBeginsTheNextAtOnce) {
  found(2);
  for (uint32_t number = 1; number <= 2; ++number) {
    for (uint32_t sequence = 0; sequence < 2; ++sequence) begin(number, sequence);
  }
  epochs.reconfigure();
  EXPECT_FALSE(epochs.needs_reconfiguration()) << "nobody is lost";
  advance();
  epochs.reconfigure();  // another link; this reconfiguration covers it
  EXPECT_EQ(said(), (Lines{"1 FreezeRequest", "2 FreezeRequest"}));
  report(1, {{op(0), OpState::kDone}, {op(1), OpState::kDone}});
  report(2, {{op(0), OpState::kDone}, {op(1), OpState::kNotDone}});
  advance();
  EXPECT_EQ(committed(record()), std::vector{op(0)});
  EXPECT_EQ(record().previous.epoch, epoch(1));
  EXPECT_EQ(record().current.epoch, epoch(2));
  EXPECT_EQ(said(), (Lines{"persist"}));
  EXPECT_EQ(persisted(context.tokens), Turn::kReconfigured);
  EXPECT_EQ(said(), (Lines{"1 EpochEnd", "2 EpochEnd", "1 EpochStart", "2 EpochStart"}));
  EXPECT_EQ(epochs.phase(), Phase::kActive);
  EXPECT_TRUE(present.in_generation(epoch(1)));
  begin(1, 1);  // again, under its number
}

// Under policy raise, only kept operations continue, if all survivors have begun them.
TEST_F(EpochsTest, AKeptOperationOutlivesALossAndTheGroupStaysBroken) {
  found(3);
  protocol::OpInfo keep = all_reduce(100);
  keep.keep = true;
  for (uint32_t number = 1; number <= 3; ++number) {
    begin(number, 0);
    EXPECT_TRUE(present.begin(peer_id(number), {present.number(), op(1), keep}).ok());
  }
  min_peers = 2;
  lose(3);
  advance();
  report(1, {{op(0), OpState::kNotDone, 0}, {op(1), OpState::kNotDone, 40}});
  report(2, {{op(0), OpState::kNotDone, 0}, {op(1), OpState::kDone, 100}});
  advance();
  const protocol::EpochEnd end = *record().previous.end;
  EXPECT_EQ(end.continuation, protocol::Continuation::kKept);
  EXPECT_EQ(end.kept, (std::vector<protocol::Kept>{{op(1), 40}})) << "and nothing else";
  EXPECT_EQ(persisted(context.tokens), Turn::kReconfigured);
  EXPECT_TRUE(epochs.broken());
  EXPECT_TRUE(epochs.needs_reconfiguration());
  EXPECT_EQ(epochs.end_status().message, "peer 3 lost");
  keep.start = 40;
  keep.world_size = 2;
  for (uint32_t number = 1; number <= 2; ++number) {
    EXPECT_TRUE(present.begin(peer_id(number), {epoch(2), op(1), keep}).ok());
  }
  epochs.reconfigure();  // a link breaks: still only kept operations continue
  advance();
  report(1, {{op(1), OpState::kNotDone, 60}});
  report(2, {{op(1), OpState::kNotDone, 50}});
  advance();
  EXPECT_EQ(record().previous.end->continuation, protocol::Continuation::kKept);
  EXPECT_EQ(record().previous.end->kept, (std::vector<protocol::Kept>{{op(1), 50}}));
  EXPECT_EQ(persisted(context.tokens), Turn::kReconfigured);
  EXPECT_TRUE(epochs.broken());
  EXPECT_EQ(epochs.end_status().message, "peer 3 lost") << "nobody since then";
  keep.start = 50;
  for (uint32_t number = 1; number <= 2; ++number) {
    EXPECT_TRUE(present.begin(peer_id(number), {epoch(3), op(1), keep}).ok());
  }
  epochs.change();
  advance();
  EXPECT_EQ(epochs.phase(), Phase::kDraining) << "it is waited for";
  for (uint32_t number = 1; number <= 2; ++number) done(number, 1);
  advance();
  EXPECT_EQ(epochs.phase(), Phase::kStarting) << "though nobody has come";
  EXPECT_EQ(persisted(context.tokens), Turn::kStarted);
  EXPECT_FALSE(epochs.broken());
}

TEST_F(EpochsTest, ALossBeforeItIsToldMakesAReconfigurationAnOrdinaryEnd) {
  found(3);
  epochs.reconfigure();
  advance();
  for (uint32_t number = 1; number <= 3; ++number) report(number, {});
  advance();
  EXPECT_EQ(record().current.epoch, epoch(2));
  const uint64_t first = context.tokens;
  lose(3);  // while it is being recorded
  effects.clear();
  EXPECT_EQ(persisted(first), Turn::kNone);
  EXPECT_EQ(record().current.epoch, epoch(1)) << "what is durable must be what is told";
  EXPECT_EQ(said(), (Lines{"persist"}));
  EXPECT_EQ(persisted(context.tokens), Turn::kEnded);
  EXPECT_EQ(epochs.phase(), Phase::kBroken);
}

TEST_F(EpochsTest, AChangeThatWasAgreedOnWaitsForTheVotesToBeCastAgain) {
  found(2);
  begin(1, 0), begin(2, 0);
  enlist(3);
  epochs.change();
  advance();
  EXPECT_EQ(epochs.phase(), Phase::kDraining);
  epochs.reconfigure();
  advance();
  report(1, {}), report(2, {});
  advance();
  EXPECT_EQ(persisted(context.tokens), Turn::kReconfigured);
  EXPECT_TRUE(epochs.changing());
  EXPECT_EQ(advance(true, false), Turn::kNone);
  EXPECT_EQ(epochs.phase(), Phase::kActive) << "what was drained may not have begun again yet";
  advance();
  EXPECT_EQ(epochs.phase(), Phase::kStarting);
}

}  // namespace
}  // namespace pccl::master
