#include "master/epochs/epochs.h"

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using Phase = Epochs::Phase;
using Turn = Epochs::Turn;
using protocol::OpState;

// The epochs of a group on their own, with registered peers that are all linked with each other.
class EpochsTest : public testing::Test {
 protected:
  EpochsTest() {
    context.effects = &effects;
    context.options.incarnation = kIncarnation;
  }
  void enlist(uint32_t number) {
    const PeerId peer = peer_id(number);
    connections.accept({number}, "10.0.0.1", false);
    connections.admit({number}, peer, {0}, ConnectionPhase::kRegistered);
    membership.welcome(peer, {});
    for (const PeerId dialler :
         membership.register_peer(peer, {"h", static_cast<uint16_t>(number)})) {
      membership.links.report(dialler, {peer, protocol::LinkState::kUp, "", 1});
    }
  }
  void found(uint32_t size) {
    for (uint32_t number = 1; number <= size; ++number) enlist(number);
    min_peers = size;
    advance();
    EXPECT_EQ(epochs.phase(), Phase::kStarting);
    EXPECT_EQ(persisted(context.tokens), Turn::kStarted);
    EXPECT_EQ(epochs.phase(), Phase::kActive);
    effects.clear();
  }
  Turn advance() { return epochs.advance({min_peers, min_peers}, true, true); }
  // The record with this token is durable.
  Turn persisted(uint64_t token) {
    context.persisting.erase(token);
    return epochs.persisted(token);
  }
  void lose(uint32_t number) {
    const protocol::Member member = membership.member(peer_id(number));
    membership.remove(peer_id(number), "");
    epochs.lose(member, "peer " + std::to_string(number) + " lost");
  }
  void begin(uint32_t number, uint32_t sequence) {
    EXPECT_TRUE(
        epochs.begin(peer_id(number), {epochs.current(), op(sequence), all_reduce(8)}).ok());
  }
  void done(uint32_t number, uint32_t sequence, uint64_t seen = 0) {
    EXPECT_TRUE(epochs.done(peer_id(number), {epochs.current(), op(sequence), seen}).ok());
  }
  void report(uint32_t number, std::vector<protocol::OpReport> ops) {
    EXPECT_TRUE(epochs.report(peer_id(number), {epochs.current(), std::move(ops)}).ok());
  }
  // Messages since the last call: "1 Ask", "2 Ask".
  Lines said() {
    Lines lines;
    for (const Effect& effect : effects) {
      if (const auto* send = std::get_if<Send>(&effect)) {
        lines.push_back(std::to_string(send->connection.value) + " " +
                        protocol::name(send->message));
      } else if (std::holds_alternative<Persist>(effect)) {
        lines.push_back("persist");
      }
    }
    effects.clear();
    return lines;
  }
  const MembershipRecord& record() {
    for (const Effect& effect : effects) {
      if (const auto* persist = std::get_if<Persist>(&effect)) {
        last_record = std::get<MembershipRecord>(persist->record);
      }
    }
    return last_record;
  }

  // The operations that a record commits in the epoch that ends with it.
  static std::vector<OpKey> committed(const MembershipRecord& record) {
    const EpochRecord& ended = record.current.end ? record.current : record.previous;
    std::vector<OpKey> ops;
    for (const protocol::Verdict& verdict : ended.verdicts) {
      if (verdict.outcome == protocol::Outcome::kCommitted) ops.push_back(verdict.op);
    }
    if (ended.end) ops.insert(ops.end(), ended.end->committed.begin(), ended.end->committed.end());
    return ops;
  }

  uint32_t min_peers = 2;
  MembershipRecord last_record;
  Effects effects;
  Context context;
  Connections connections{context};
  Membership membership;
  Epochs epochs{{0}, context, connections, membership};
};

TEST_F(EpochsTest, AChangeLetsRunWhatAllHaveBegun) {
  found(2);
  begin(1, 0);
  begin(2, 0);
  begin(1, 1);
  enlist(3);
  epochs.change();
  EXPECT_EQ(advance(), Turn::kNone);
  epochs.flush();
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
  EXPECT_EQ(epochs.current(), epoch(2));
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
  EXPECT_EQ(epochs.current(), epoch(1));
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
  EXPECT_EQ(epochs.advance({min_peers, min_peers}, true, true), Turn::kNone);
  report(2, {{op(0), OpState::kDone}, {op(1), OpState::kNotDone}});
  report(2, {{op(1), OpState::kDone}});  // its first report counts
  EXPECT_EQ(epochs.advance({min_peers, min_peers}, false, true), Turn::kNone)
      << "something else is being recorded";
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
  EXPECT_EQ(epochs.current(), epoch(3)) << "the number of the plan that was given up is not reused";
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

TEST_F(EpochsTest, AnOperationWithAVerdictIsNotDecidedAgain) {
  found(3);
  begin(1, 1);
  EXPECT_TRUE(epochs.begin(peer_id(2), {epoch(1), op(1), all_reduce(9)}).ok());  // a mismatch
  epochs.flush();
  lose(3);
  advance();
  for (uint32_t number = 1; number <= 2; ++number) report(number, {{op(1), OpState::kDone}});
  advance();
  EXPECT_EQ(committed(record()), std::vector<OpKey>{});
}

TEST_F(EpochsTest, TheReceiverDecidesATransfer) {
  found(3);
  protocol::OpInfo info;
  info.kind = protocol::OpKind::kSend;
  info.root = peer_id(1);
  info.receiver = peer_id(2);
  for (uint32_t number = 1; number <= 2; ++number) {
    EXPECT_TRUE(epochs.begin(peer_id(number), {epoch(1), op(0), info}).ok());
  }
  lose(3);
  advance();
  // This receiver is lost; the Begin was sent before the Ask arrived.
  info.receiver = peer_id(3);
  EXPECT_TRUE(epochs.begin(peer_id(1), {epoch(1), op(1), info}).ok());
  report(1, {{op(0), OpState::kNotDone}, {op(1), OpState::kDone}});
  report(2, {{op(0), OpState::kDone}});
  advance();
  EXPECT_EQ(committed(record()), std::vector{op(0)});
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
  EXPECT_TRUE(epochs.in_generation(epoch(1)));
  begin(1, 1);  // again, under its number
}

TEST_F(EpochsTest, SaysHowLongTheWayIsBetweenNeighbours) {
  found(3);
  uint32_t serial = 1;
  const auto measured = [&](uint32_t a, uint32_t b, uint32_t microseconds) {
    membership.links.report(peer_id(a),
                            {peer_id(b), protocol::LinkState::kUp, "", ++serial, microseconds});
  };
  const auto reconfigured = [&] {
    epochs.reconfigure();
    advance();
    for (uint32_t number = 1; number <= 3; ++number) report(number, {});
    advance();
    persisted(context.tokens);
    uint32_t way = 0;
    for (const Effect& effect : effects) {
      const auto* const send = std::get_if<Send>(&effect);
      const auto* const start =
          send == nullptr ? nullptr : std::get_if<protocol::EpochStart>(&send->message);
      if (start != nullptr) way = start->rtt;
    }
    effects.clear();
    return way;
  };
  EXPECT_EQ(reconfigured(), 0u);
  measured(1, 2, 300);
  measured(2, 3, 90'000);
  measured(3, 1, 20'000);
  EXPECT_EQ(reconfigured(), 90'000u);
  measured(2, 3, 5'000);
  EXPECT_EQ(reconfigured(), 20'000u);
  measured(2, 3, 0);
  EXPECT_EQ(reconfigured(), 20'000u) << "one that is not measured says nothing";
}

// Under policy raise, only kept operations continue, if all survivors have begun them.
TEST_F(EpochsTest, AKeptOperationOutlivesALossAndTheGroupStaysBroken) {
  found(3);
  protocol::OpInfo keep = all_reduce(100);
  keep.keep = true;
  for (uint32_t number = 1; number <= 3; ++number) {
    begin(number, 0);
    EXPECT_TRUE(epochs.begin(peer_id(number), {epochs.current(), op(1), keep}).ok());
  }
  min_peers = 2;
  lose(3);
  advance();
  report(1, {{op(0), OpState::kNotDone, 0}, {op(1), OpState::kNotDone, 40}});
  report(2, {{op(0), OpState::kNotDone, 99}, {op(1), OpState::kDone, 100}});
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
    EXPECT_TRUE(epochs.begin(peer_id(number), {epoch(2), op(1), keep}).ok());
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
    EXPECT_TRUE(epochs.begin(peer_id(number), {epoch(3), op(1), keep}).ok());
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

TEST_F(EpochsTest, NothingIsKeptOfWhatOneSurvivorHasNotBegun) {
  found(3);
  protocol::OpInfo keep = all_reduce(100);
  keep.keep = true;
  EXPECT_TRUE(epochs.begin(peer_id(2), {epoch(1), op(0), keep}).ok());
  min_peers = 2;
  lose(3);
  advance();
  report(1, {}), report(2, {{op(0), OpState::kNotDone, 40}});
  advance();
  EXPECT_EQ(record().current.end->continuation, protocol::Continuation::kNothing);
  EXPECT_TRUE(record().current.end->kept.empty());
}

TEST_F(EpochsTest, NothingIsKeptWhereTooFewAreLeft) {
  found(2);
  protocol::OpInfo keep = all_reduce(100);
  keep.keep = true;
  EXPECT_TRUE(epochs.begin(peer_id(1), {epoch(1), op(0), keep}).ok());
  lose(2);
  advance();
  report(1, {{op(0), OpState::kNotDone, 40}});
  advance();
  EXPECT_EQ(record().current.end->continuation, protocol::Continuation::kNothing);
  EXPECT_TRUE(record().current.end->kept.empty());
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
  EXPECT_EQ(epochs.advance({2, 2}, true, false), Turn::kNone);
  EXPECT_EQ(epochs.phase(), Phase::kActive) << "what was drained may not have begun again yet";
  advance();
  EXPECT_EQ(epochs.phase(), Phase::kStarting);
}

TEST_F(EpochsTest, MessagesThatCrossTheEndAreVoidAndTheFutureIsForbidden) {
  found(2);
  const auto forbidden = [](const Status& status) { return status.code == Code::kProtocol; };
  EXPECT_TRUE(forbidden(epochs.begin(peer_id(1), {epoch(2), op(0), all_reduce(8)})));
  EXPECT_TRUE(forbidden(epochs.done(peer_id(1), {epoch(2), op(0), 0})));
  EXPECT_TRUE(forbidden(epochs.report(peer_id(1), {epoch(1), {}}))) << "nobody asked";
  EXPECT_TRUE(forbidden(epochs.acknowledge(peer_id(1), epoch(1), 1))) << "there is no verdict yet";
  lose(2);
  EXPECT_TRUE(epochs.begin(peer_id(1), {epoch(1), op(0), all_reduce(8)}).ok());
  EXPECT_TRUE(epochs.done(peer_id(1), {epoch(1), op(0), 0}).ok());
  EXPECT_TRUE(epochs.abort(peer_id(1), {epoch(1), op(0), Code::kSystem, ""}).ok());
  EXPECT_TRUE(epochs.acknowledge(peer_id(1), {}, 0).ok());
}

TEST_F(EpochsTest, AMemberThatAcknowledgesNothingIsUnresponsive) {
  found(2);
  for (uint32_t i = 0; i <= protocol::kOpsOpenMax; ++i) {
    begin(1, i);
    begin(2, i);
    done(1, i, i == 0 ? 0 : i);
    done(2, i);
    epochs.flush();
  }
  EXPECT_EQ(epochs.unresponsive_members(), std::vector{peer_id(2)});
}

// ---- The direct pattern ----

TEST_F(EpochsTest, SharesComeWithTheDirectPatternIfAllAreLinked) {
  context.pattern = protocol::PatternChoice::kDirect;
  context.options.shares = {0, 200, 56};
  for (uint32_t number = 1; number <= 3; ++number) enlist(number);
  min_peers = 3;
  advance();
  EXPECT_EQ(record().start.shares, (std::vector<uint16_t>{0, 200, 56}));
  EXPECT_EQ(record().pattern, protocol::PatternChoice::kDirect);
}

TEST_F(EpochsTest, WithoutTheDirectPatternThereAreNoShares) {
  context.pattern = protocol::PatternChoice::kRing;
  context.options.shares = {128, 128};
  enlist(1);
  enlist(2);
  min_peers = 2;
  advance();
  EXPECT_TRUE(record().start.shares.empty());
}

// The survivors of a loss go on while the link between two of them is down.
TEST_F(EpochsTest, WithoutALinkOfEachPairThereAreNoShares) {
  context.pattern = protocol::PatternChoice::kDirect;
  context.policy = protocol::LossPolicy::kRetry;
  found(4);
  min_peers = 2;
  for (const bool linked : {true, false}) {
    if (!linked)
      membership.links.report(peer_id(1), {peer_id(2), protocol::LinkState::kDown, "", 1});
    lose(linked ? 4 : 3);
    advance();
    for (const PeerId member : membership.members())
      EXPECT_TRUE(epochs.report(member, {epochs.current(), {}}).ok());
    advance();
    EXPECT_EQ(record().start.shares.size(), linked ? 3u : 0u);
    EXPECT_EQ(persisted(context.tokens), Turn::kReconfigured);
  }
}

// Rates come with traffic. So the first epoch has the ring, and a later one may have shares.
TEST_F(EpochsTest, WithoutAWishTheRatesOfAllPathsDecide) {
  context.policy = protocol::LossPolicy::kRetry;
  found(5);
  EXPECT_TRUE(record().start.shares.empty());
  min_peers = 2;
  const auto measure = [this](uint32_t from, uint32_t to) {
    EXPECT_TRUE(membership.links.measured(peer_id(from), {{{peer_id(to), 1 << 20}}}).ok());
  };
  for (uint32_t from = 1; from <= 3; ++from) {
    for (uint32_t to = from + 1; to <= 4; ++to) {
      membership.links.report(peer_id(from),
                              {peer_id(to), protocol::LinkState::kUp, "", 2, 40'000});
      measure(from, to);
      if (to < 4) measure(to, from);
    }
  }
  for (const uint32_t lost : {5, 4}) {
    lose(lost);
    advance();
    for (const PeerId member : membership.members())
      EXPECT_TRUE(epochs.report(member, {epochs.current(), {}}).ok());
    advance();
    EXPECT_EQ(record().start.shares.size(), lost == 5 ? 0u : 3u)
        << "nothing is known of the paths from peer 4";
    EXPECT_EQ(persisted(context.tokens), Turn::kReconfigured);
  }
}

}  // namespace
}  // namespace pccl::master
