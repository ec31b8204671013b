#include "master/state/agreement.h"

#include <gtest/gtest.h>

#include "master/members/connections.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

class AgreementTest : public testing::Test {
 protected:
  AgreementTest() {
    context.effects = &effects;
    for (const PeerId peer : {kA, kB, kC}) {
      connections.accept({peer.value}, "10.0.0.1", false);
      connections.admit({peer.value}, peer, {0}, ConnectionPhase::kMember);
    }
  }
  Agreement::Outcome begin(const std::vector<protocol::Offer>& offers, uint32_t number = 4) {
    std::vector<OfferOf> of;
    for (size_t rank = 0; rank < offers.size(); ++rank) of.push_back({{rank + 1}, &offers[rank]});
    return agreement.begin(of, number);
  }
  // Connections that were sent a plan since the last call, and the number of records to persist.
  std::pair<std::vector<uint64_t>, size_t> done() {
    std::pair<std::vector<uint64_t>, size_t> out;
    for (const Effect& effect : effects) {
      const auto* send = std::get_if<Send>(&effect);
      if (send != nullptr && std::holds_alternative<protocol::SyncPlan>(send->message)) {
        out.first.push_back(send->connection.value);
      }
      if (std::holds_alternative<Persist>(effect)) ++out.second;
    }
    effects.clear();
    return out;
  }
  using Done = std::pair<std::vector<uint64_t>, size_t>;

  Effects effects;
  Context context;
  Connections connections{context};
  Agreement agreement{{0}, context, connections};
};

TEST_F(AgreementTest, AChangeIsDurableBeforeItIsAnnounced) {
  EXPECT_FALSE(begin({offer(1, {5}), offer(1, {5}), offer(1, {5})}).has_value());
  EXPECT_TRUE(agreement.recording());
  EXPECT_EQ(done(), (Done{{}, 1}));
  EXPECT_FALSE(agreement.persisted(context.tokens + 1).has_value()) << "another record";
  EXPECT_FALSE(agreement.recorded().has_value());
  const auto outcome = agreement.persisted(context.tokens);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code, Code::kOk);
  EXPECT_EQ(outcome->revision, 1u);
  EXPECT_EQ(outcome->state_hash, agreement.recorded()->hash);
  // The same offers again change nothing, so the answer comes at once.
  const auto again = begin({offer(1, {5}), offer(1, {5}), offer(1, {5})});
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, *outcome);
  EXPECT_EQ(done(), (Done{{}, 0}));
}

TEST_F(AgreementTest, SourcesAndReceiversGetThePlanAndReceiversAreWaitedFor) {
  EXPECT_FALSE(begin({offer(1, {5}), offer(0, {0}, kReceive), offer(1, {5})}).has_value());
  EXPECT_EQ(done(), (Done{{1, 2, 3}, 0}));
  EXPECT_EQ(agreement.fetching(), std::set{kB});
  EXPECT_TRUE(agreement.plan().has_value());
  EXPECT_FALSE(agreement.fetched({9}, {4, Code::kSystem, ""}).has_value()) << "takes no part";
  EXPECT_FALSE(agreement.fetched(kB, {3, Code::kOk, ""}).has_value()) << "of another call";
  EXPECT_EQ(done(), (Done{{}, 0}));
  EXPECT_FALSE(agreement.fetched(kB, {4, Code::kOk, ""}).has_value());
  EXPECT_EQ(done(), (Done{{}, 1}));
  EXPECT_TRUE(agreement.persisted(context.tokens).has_value());
  EXPECT_FALSE(agreement.fetched(kB, {4, Code::kOk, ""}).has_value()) << "said again";
}

// A newcomer that says that it has the state already is no source.
TEST_F(AgreementTest, AMemberWithoutAPartLearnsThatAllHaveVoted) {
  const std::vector<protocol::Offer> offers{offer(1, {5}), offer(0, {0}, kReceive), offer(1, {5})};
  std::vector<OfferOf> of{{kA, &offers[0], true}, {kB, &offers[1]}, {kC, &offers[2]}};
  EXPECT_FALSE(agreement.begin(of, 4).has_value());
  EXPECT_EQ(agreement.plan()->sources, std::vector{kA});
  EXPECT_FALSE(agreement.expects(kC));
  EXPECT_EQ(done(), (Done{{1, 2, 3}, 0}));
}

TEST_F(AgreementTest, OneFailureFailsItForAll) {
  begin({offer(1, {5}), offer(0, {0}, kReceive), offer(0, {0}, kReceive)});
  EXPECT_FALSE(agreement.fetched(kB, {4, Code::kOk, ""}).has_value());
  const auto outcome = agreement.fetched(kC, {4, Code::kSystem, "rank 2: no memory"});
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code, Code::kSharedState);
  EXPECT_EQ(outcome->text, "rank 2: no memory");
  EXPECT_TRUE(agreement.idle());
  EXPECT_FALSE(agreement.recorded().has_value());
}

// The members vote again after a loss.
class InterruptedAgreement : public AgreementTest {
 protected:
  InterruptedAgreement() {
    begin({offer(1, {5, 6}), offer(0, {0, 6}, kReceive), offer(0, {0, 0}, kReceive)});
    done();
    agreement.interrupt("peer 1 lost");
    EXPECT_TRUE(agreement.idle());
    EXPECT_FALSE(agreement.plan().has_value());
  }
  std::optional<protocol::SyncPlan> plan_with(const std::vector<protocol::Offer>& offers,
                                              const std::vector<PeerId>& peers) {
    std::vector<OfferOf> of;
    for (size_t i = 0; i < offers.size(); ++i) of.push_back({peers[i], &offers[i]});
    outcome = agreement.begin(of, 4);
    agreement.check();
    return agreement.plan();
  }
  Agreement::Outcome outcome;
};

TEST_F(InterruptedAgreement, WithoutTheSourceTheReceiversCompleteEachOther) {
  const auto plan = plan_with({offer(0, {0, 6}, kReceive), offer(0, {0, 0}, kReceive)}, {kB, kC});
  ASSERT_TRUE(plan.has_value());
  EXPECT_TRUE(plan->sources.empty());
  EXPECT_EQ(plan->receivers, (std::vector{kB, kC}));
  EXPECT_EQ(plan->keys, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(plan->gone, "peer 1 lost");
}

TEST_F(InterruptedAgreement, AStateThatFallsBehindDoesNotWin) {
  const auto plan = plan_with({offer(0, {0, 6}), offer(0, {0, 0}, kReceive)}, {kB, kC});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->revision, 1u);
}

// kB had the elected state, and may work with it already. By itself, kA's content would win now.
TEST_F(AgreementTest, AfterALossTheElectedStateStaysElectedWhileAMemberHasIt) {
  const std::vector<protocol::Offer> offers{offer(1, {7}), offer(1, {5}), offer(1, {5})};
  EXPECT_FALSE(begin(offers).has_value());
  EXPECT_EQ(agreement.plan()->receivers, std::vector{kA});
  agreement.interrupt("peer 3 lost");
  const std::vector<OfferOf> left{{kA, &offers[0]}, {kB, &offers[1]}};
  EXPECT_FALSE(agreement.begin(left, 4).has_value());
  EXPECT_EQ(agreement.plan()->sources, std::vector{kB});
  EXPECT_EQ(agreement.plan()->receivers, std::vector{kA});
}

TEST_F(InterruptedAgreement, AnotherContentOfTheSameRevisionMayWin) {
  const auto plan = plan_with({offer(1, {7, 7}), offer(0, {0, 0}, kReceive)}, {kB, kC});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->entries[0].hash, 7u);
  EXPECT_EQ(plan->sources, std::vector{kB});
}

TEST_F(InterruptedAgreement, ItIsForgottenWithTheCall) {
  agreement.cancel();
  plan_with({offer(0, {0, 6}, kReceive), offer(0, {0, 0}, kReceive)}, {kB, kC});
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code, Code::kSharedState);
}

TEST_F(AgreementTest, ARefusalIsTheAnswer) {
  const auto outcome = begin({offer(0, {0}, kReceive)});
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code, Code::kSharedState);
  EXPECT_TRUE(agreement.idle());
}

TEST_F(AgreementTest, ARecordIsCompletedAlthoughNoVoterWaits) {
  begin({offer(1, {5})});
  agreement.cancel();
  EXPECT_FALSE(agreement.idle());
  EXPECT_FALSE(agreement.persisted(context.tokens).has_value());
  EXPECT_EQ(agreement.recorded()->revision, 1u);
  begin({offer(2, {5}), offer(0, {0}, kReceive)});
  agreement.cancel();
  EXPECT_TRUE(agreement.idle());
  EXPECT_FALSE(agreement.plan().has_value());
}

class DriftingAgreement : public AgreementTest {
 protected:
  // All members hold revision 1, and are trained here.
  DriftingAgreement() { agreement.restore({1, protocol::state_hash(offer(1, {5}).entries)}); }
  Agreement::Outcome step(PeerId fetches = kC) {
    const std::vector<protocol::Offer> offers{offer(2, {6}), offer(2, {6}), offer(2, {7})};
    std::vector<OfferOf> of;
    for (const PeerId peer : {kA, kB, kC}) of.push_back({peer, &offers[peer.value - 1], true});
    if (const auto outcome = agreement.begin(of, 4)) return outcome;
    return agreement.fetched(fetches, {4, Code::kOk, ""});
  }
  // Texts of the warnings since the last call.
  Lines warnings() {
    Lines all;
    for (const Effect& effect : std::exchange(effects, {})) {
      const auto* const log = std::get_if<Log>(&effect);
      if (log != nullptr && log->level == LogLevel::kWarning) all.push_back(log->text);
    }
    return all;
  }
};

// After a restart of the master, too, the members have the recorded state.
TEST_F(DriftingAgreement, TheMemberIsNamedOnceTheStateIsDurable) {
  EXPECT_FALSE(step().has_value());
  EXPECT_EQ(warnings(), Lines{});
  EXPECT_TRUE(agreement.persisted(context.tokens).has_value());
  const Lines all = warnings();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].starts_with("rank 2 drifts: ")) << all[0];
  EXPECT_TRUE(agreement.drifts().all().contains(kC));
}

TEST_F(DriftingAgreement, ACallThatEndsCorrectsNobody) {
  step(kA);
  agreement.cancel();
  EXPECT_TRUE(agreement.drifts().all().empty());
  step();
  agreement.cancel();
  EXPECT_FALSE(agreement.persisted(context.tokens).has_value()) << "nobody is answered";
  EXPECT_TRUE(agreement.drifts().all().empty());
  EXPECT_EQ(warnings(), Lines{});
}

TEST_F(DriftingAgreement, ACallThatContinuesAfterALossCountsOnce) {
  step(kA);
  agreement.interrupt("peer 9 lost");
  EXPECT_FALSE(step().has_value());
  EXPECT_TRUE(agreement.persisted(context.tokens).has_value());
  EXPECT_EQ(warnings().size(), 1u);
  EXPECT_EQ(agreement.drifts().all().at(kC).count, 1u);
}

}  // namespace
}  // namespace pccl::master
