#include "master/epochs/epoch_plan.h"

#include "tests/cpp/master/epochs/epochs_test.h"

namespace pccl::master {
namespace {

using protocol::OpState;
using Turn = Epochs::Turn;

using EpochPlanTest = EpochsTest;

TEST_F(EpochPlanTest, AnOperationWithAVerdictIsNotDecidedAgain) {
  found(3);
  begin(1, 1);
  EXPECT_TRUE(present.begin(peer_id(2), {epoch(1), op(1), all_reduce(9)}).ok());  // a mismatch
  present.flush();
  lose(3);
  advance();
  for (uint32_t number = 1; number <= 2; ++number) report(number, {{op(1), OpState::kDone}});
  advance();
  EXPECT_EQ(committed(record()), std::vector<OpKey>{});
}

TEST_F(EpochPlanTest, TheReceiverDecidesATransfer) {
  found(3);
  protocol::OpInfo info;
  info.kind = protocol::OpKind::kSend;
  info.root = peer_id(1);
  info.receiver = peer_id(2);
  for (uint32_t number = 1; number <= 2; ++number) {
    EXPECT_TRUE(present.begin(peer_id(number), {epoch(1), op(0), info}).ok());
  }
  lose(3);
  advance();
  // This receiver is lost; the Begin was sent before the Ask arrived.
  info.receiver = peer_id(3);
  EXPECT_TRUE(present.begin(peer_id(1), {epoch(1), op(1), info}).ok());
  report(1, {{op(0), OpState::kNotDone}, {op(1), OpState::kDone}});
  report(2, {{op(0), OpState::kDone}});
  advance();
  EXPECT_EQ(committed(record()), std::vector{op(0)});
}

TEST_F(EpochPlanTest, SaysHowLongTheWayIsBetweenNeighbours) {
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

TEST_F(EpochPlanTest, NothingIsKeptOfWhatOneSurvivorHasNotBegun) {
  found(3);
  protocol::OpInfo keep = all_reduce(100);
  keep.keep = true;
  EXPECT_TRUE(present.begin(peer_id(2), {epoch(1), op(0), keep}).ok());
  min_peers = 2;
  lose(3);
  advance();
  report(1, {}), report(2, {{op(0), OpState::kNotDone, 40}});
  advance();
  EXPECT_EQ(record().current.end->continuation, protocol::Continuation::kNothing);
  EXPECT_TRUE(record().current.end->kept.empty());
}

TEST_F(EpochPlanTest, NothingIsKeptWhereTooFewAreLeft) {
  found(2);
  protocol::OpInfo keep = all_reduce(100);
  keep.keep = true;
  EXPECT_TRUE(present.begin(peer_id(1), {epoch(1), op(0), keep}).ok());
  lose(2);
  advance();
  report(1, {{op(0), OpState::kNotDone, 40}});
  advance();
  EXPECT_EQ(record().current.end->continuation, protocol::Continuation::kNothing);
  EXPECT_TRUE(record().current.end->kept.empty());
}

TEST_F(EpochPlanTest, SharesComeWithTheDirectPatternIfAllAreLinked) {
  context.settings.pattern = protocol::PatternChoice::kDirect;
  context.options.shares = {0, 200, 56};
  for (uint32_t number = 1; number <= 3; ++number) enlist(number);
  min_peers = 3;
  advance();
  EXPECT_EQ(record().start.shares, (std::vector<uint16_t>{0, 200, 56}));
  EXPECT_EQ(record().settings.pattern, protocol::PatternChoice::kDirect);
}

TEST_F(EpochPlanTest, WithoutTheDirectPatternThereAreNoShares) {
  context.settings.pattern = protocol::PatternChoice::kRing;
  context.options.shares = {128, 128};
  enlist(1);
  enlist(2);
  min_peers = 2;
  advance();
  EXPECT_TRUE(record().start.shares.empty());
}

// The survivors of a loss go on while the link between two of them is down.
TEST_F(EpochPlanTest, WithoutALinkOfEachPairThereAreNoShares) {
  context.settings.pattern = protocol::PatternChoice::kDirect;
  context.settings.on_peer_loss = protocol::LossPolicy::kRetry;
  found(4);
  min_peers = 2;
  for (const bool linked : {true, false}) {
    if (!linked)
      membership.links.report(peer_id(1), {peer_id(2), protocol::LinkState::kDown, "", 1});
    lose(linked ? 4 : 3);
    advance();
    for (const PeerId member : membership.members())
      EXPECT_TRUE(epochs.report(member, {present.number(), {}}).ok());
    advance();
    EXPECT_EQ(record().start.shares.size(), linked ? 3u : 0u);
    EXPECT_EQ(persisted(context.tokens), Turn::kReconfigured);
  }
}

// Rates come with traffic. So the first epoch has the ring, and a later one may have shares.
TEST_F(EpochPlanTest, WithoutAWishTheRatesOfAllPathsDecide) {
  context.settings.on_peer_loss = protocol::LossPolicy::kRetry;
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
      EXPECT_TRUE(epochs.report(member, {present.number(), {}}).ok());
    advance();
    EXPECT_EQ(record().start.shares.size(), lost == 5 ? 0u : 3u)
        << "nothing is known of the paths from peer 4";
    EXPECT_EQ(persisted(context.tokens), Turn::kReconfigured);
  }
}

}  // namespace
}  // namespace pccl::master
