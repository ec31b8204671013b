#include "master/state/election.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "csrc/protocol/limits.h"
#include "csrc/protocol/state.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::Offer;
using protocol::SyncStrategy;

// Peer 1 has rank 0, and so on.
Election vote(const std::vector<Offer>& offers, std::optional<AgreedState> recorded = {}) {
  std::vector<OfferOf> of;
  for (size_t rank = 0; rank < offers.size(); ++rank)
    of.push_back({{rank + 1}, &offers[rank], false});
  return elect(of, recorded);
}
AgreedState state_of(uint64_t revision, const std::vector<uint64_t>& hashes) {
  return {revision, protocol::state_hash(offer(revision, hashes).entries)};
}

TEST(Election, NothingIsSentWhenAllHaveTheSame) {
  const Election result = vote({offer(3, {1, 2}), offer(3, {1, 2})});
  EXPECT_EQ(result.refusal, "");
  EXPECT_EQ(result.agreed, state_of(3, {1, 2}));
  EXPECT_TRUE(result.receivers.empty());
}

TEST(Election, AmongContentsOfOneRevisionTheOneOfMostWins) {
  const Election result = vote({offer(3, {7, 2}), offer(3, {1, 2}), offer(3, {1, 2})});
  EXPECT_EQ(result.agreed, state_of(3, {1, 2}));
  EXPECT_EQ(result.sources, (std::vector<PeerId>{{2}, {3}}));
  EXPECT_EQ(result.receivers, (std::vector<PeerId>{{1}}));
  EXPECT_EQ(result.keys, (std::vector<uint32_t>{0})) << "only what differs";
}

TEST(Election, FreshFoundersDoNotOutvoteACheckpoint) {
  EXPECT_EQ(vote({offer(1000, {7}), offer(0, {1}), offer(0, {1})}).agreed, state_of(1000, {7}));
}

TEST(Election, TheHigherRevisionWinsThenTheLowerRank) {
  EXPECT_EQ(vote({offer(3, {1}), offer(4, {2})}).agreed, state_of(4, {2}));
  EXPECT_EQ(vote({offer(4, {1}), offer(4, {2})}).agreed, state_of(4, {1}));
  EXPECT_EQ(vote({offer(4, {1}), offer(4, {2}), offer(4, {2}), offer(4, {1})}).agreed,
            state_of(4, {1}));
}

TEST(Election, AReceiverIsServedAndNotCounted) {
  const Election result = vote(
      {offer(0, {9}, kReceive), offer(0, {9}, kReceive), offer(5, {1}), offer(0, {9}, kReceive)});
  EXPECT_EQ(result.agreed, state_of(5, {1}));
  EXPECT_EQ(result.sources, (std::vector<PeerId>{{3}}));
  EXPECT_EQ(result.receivers, (std::vector<PeerId>{{1}, {2}, {4}}));
}

TEST(Election, AllThatHaveTheStateSendWhatSomebodyLacks) {
  const Election result =
      vote({offer(0, {9, 8, 3}, kReceive), offer(5, {1, 2, 3}), offer(5, {1, 2, 3}),
            offer(0, {1, 8, 3}, kReceive), offer(0, {9, 2, 3}, kReceive)});
  const protocol::SyncPlan plan = plan_of(17, result);
  EXPECT_EQ(plan.number, 17u);
  EXPECT_EQ(plan.revision, 5u);
  EXPECT_EQ(plan.sources, (std::vector<PeerId>{{2}, {3}}));
  EXPECT_EQ(plan.receivers, (std::vector<PeerId>{{1}, {4}, {5}}));
  EXPECT_EQ(plan.keys, (std::vector<uint32_t>{0, 1})) << "of any of them";
}

TEST(Election, ANewcomerThatSaysItHasTheStateIsNoSource) {
  const std::vector<Offer> offers = {offer(5, {1}), offer(0, {9}, kReceive), offer(5, {1})};
  const std::vector<OfferOf> of = {
      {{1}, &offers[0], true}, {{2}, &offers[1], false}, {{3}, &offers[2], false}};
  EXPECT_EQ(elect(of, {}).sources, (std::vector<PeerId>{{1}}));
  EXPECT_EQ(vote(offers).sources, (std::vector<PeerId>{{1}, {3}})) << "nobody was trained here";
}

TEST(Election, AfterALossTheElectedStateAndItsPiecesStay) {
  const std::vector<Offer> offers = {offer(5, {1, 2}), offer(4, {9, 2}), offer(4, {9, 8})};
  const std::vector<OfferOf> of = {{{1}, &offers[0]}, {{2}, &offers[1]}, {{3}, &offers[2]}};
  const Election before = elect(of, {});
  EXPECT_EQ(before.keys, (std::vector<uint32_t>{0, 1}));
  const Election without_receiver = resumed(before, {of[0], of[1]});
  EXPECT_EQ(without_receiver.sources, (std::vector<PeerId>{{1}}));
  EXPECT_EQ(without_receiver.receivers, (std::vector<PeerId>{{2}}));
  EXPECT_EQ(without_receiver.keys, before.keys) << "the pieces stay the same";
  const Election without_source = resumed(before, {of[1], of[2]});
  EXPECT_TRUE(without_source.sources.empty());
  EXPECT_EQ(without_source.receivers, (std::vector<PeerId>{{2}, {3}}));
  EXPECT_EQ(without_source.agreed, state_of(5, {1, 2}));
}

TEST(Election, AnOlderRevisionOfTheSameContentHasNothingToFetch) {
  const Election result = vote({offer(4, {1}), offer(5, {1}), offer(5, {1})});
  EXPECT_EQ(result.agreed, state_of(5, {1}));
  EXPECT_TRUE(result.receivers.empty());
}

TEST(Election, ASenderOnlyIsNotOverwritten) {
  const Election result = vote({offer(5, {1}), offer(5, {2}, kSendOnly), offer(5, {1})});
  EXPECT_EQ(result.refusal,
            "rank 1 must not be overwritten (send_only), but the state of rank 0 at "
            "revision 5 is the one that wins");
  EXPECT_EQ(vote({offer(5, {1}, kReceive), offer(5, {2}, kSendOnly)}).refusal, "");
}

TEST(Election, NobodyToSendIsRefused) {
  EXPECT_EQ(vote({offer(5, {1}, kReceive), offer(5, {1}, kReceive)}).refusal,
            "no rank offers a state that may be sent: all are receive_only");
}

TEST(Election, LayoutsMustBeAlikeAndTheDifferenceIsShown) {
  Offer other = offer(5, {1, 2}, kReceive);
  other.entries[1].shape = {6};
  other.entries.push_back({"z", DType::kInt64, {}, 0});
  EXPECT_EQ(vote({offer(5, {1, 2}), offer(5, {1, 2}), other}).refusal,
            "ranks 0 and 2 offer states of different keys, types or shapes: "
            "\"k1\" is float32[2, 3] at rank 0 and float32[6] at rank 2; "
            "\"z\" is absent at rank 0 and int64[] at rank 2");
}

TEST(Election, ARevisionAdvancesByOneFromWhatWasAgreed) {
  const AgreedState recorded = state_of(5, {1});
  EXPECT_EQ(vote({offer(5, {1})}, recorded).refusal, "");
  EXPECT_EQ(vote({offer(6, {2})}, recorded).refusal, "");
  EXPECT_NE(vote({offer(5, {2})}, recorded).refusal, "") << "the same revision, other bits";
  EXPECT_NE(vote({offer(7, {2})}, recorded).refusal, "");
  const std::string refusal = vote({offer(0, {1})}, recorded).refusal;
  EXPECT_TRUE(contains(refusal, "has revision 0")) << refusal;
  EXPECT_TRUE(contains(refusal, "agreed on revision 5")) << refusal;
}

TEST(Election, NewcomersDoNotOutvoteTheRecord) {
  const AgreedState recorded = state_of(5, {1});
  const Offer fresh = offer(0, {9}), same_number = offer(5, {9});
  EXPECT_EQ(vote({offer(5, {1}), fresh, fresh}, recorded).agreed, recorded);
  EXPECT_EQ(vote({same_number, same_number, offer(6, {2})}, recorded).agreed, state_of(6, {2}));
  EXPECT_NE(vote({offer(5, {1}, kReceive), fresh, fresh}, recorded).refusal, "");
}

// ---- State that was trained here ----

// The offers of rank 0 and so on; `trained` marks the members that have trained here.
std::vector<OfferOf> offers_of(const std::vector<Offer>& offers, const std::vector<bool>& trained) {
  std::vector<OfferOf> of;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    of.push_back({{rank + 1}, &offers[rank], trained[rank]});
  }
  return of;
}
std::vector<PeerId> peers(const std::vector<Misfit>& misfits) {
  std::vector<PeerId> peers;
  for (const Misfit& misfit : misfits) peers.push_back(misfit.peer);
  return peers;
}

TEST(Election, AStepThatOneHasTakenIsNotLost) {
  const AgreedState recorded = state_of(5, {1});
  const std::vector<Offer> offers = {offer(5, {1}), offer(6, {2}), offer(5, {1})};
  EXPECT_EQ(elect(offers_of(offers, {true, true, true}), recorded).agreed, state_of(6, {2}));
  EXPECT_EQ(vote(offers, recorded).agreed, state_of(6, {2})) << "all came back after a restart";
}

TEST(Election, AMemberThatTrainedOnWithoutASyncIsRefusedNotSetBack) {
  const AgreedState recorded = state_of(0, {1});
  const std::vector<Offer> offers = {offer(2, {3}), offer(2, {3}), offer(0, {1})};
  const auto of = offers_of(offers, {true, true, false});
  EXPECT_TRUE(misfits(of, recorded).empty());
  const std::string refusal = elect(of, recorded).refusal;
  EXPECT_TRUE(contains(refusal, "rank 0 offers revision 2")) << refusal;
  EXPECT_TRUE(contains(refusal, "agreed on revision 0")) << refusal;
  EXPECT_TRUE(contains(refusal, "state.revision = 1")) << refusal;
}

TEST(Election, AfterARestartALaterCheckpointIsRefusedNotSetBack) {
  const std::string refusal = vote({offer(5, {1}), offer(8, {2})}, state_of(5, {1})).refusal;
  EXPECT_TRUE(contains(refusal, "revision 8")) << refusal;
  EXPECT_TRUE(contains(refusal, "--resume-from 8:")) << refusal;
}

TEST(Election, NewcomersDoNotOutvoteWhatWasTrainedHere) {
  const std::vector<Offer> offers = {offer(6, {2}), offer(6, {9}), offer(5, {9}), offer(5, {9})};
  const auto of = offers_of(offers, {true, false, false, false});
  EXPECT_EQ(peers(misfits(of, {})), (std::vector<PeerId>{})) << "equal and lower are overwritten";
  EXPECT_EQ(elect(of, {}).agreed, state_of(6, {2}));
  EXPECT_EQ(peers(misfits(of, state_of(5, {1}))), (std::vector<PeerId>{}))
      << "a member that was removed and comes back takes the members' state";
}

TEST(Election, ANewcomerThatCannotBeTakenIsNamedWithBothSides) {
  Offer wide = offer(0, {9});
  wide.entries[0].shape = {7};
  const std::vector<Offer> offers = {offer(5, {1}), wide, offer(7, {9}), offer(3, {9}, kSendOnly),
                                     offer(9, {9}, kReceive)};
  const auto found =
      misfits(offers_of(offers, {true, false, false, false, false}), state_of(5, {1}));
  ASSERT_EQ(peers(found), (std::vector<PeerId>{{2}, {3}, {4}}));
  EXPECT_TRUE(contains(found[0].why,
                       "\"k0\" is float32[7] at the newcomer and float32[2, 3] at the members"));
  EXPECT_TRUE(contains(found[1].why, "its state has revision 7, that of the members revision 5"));
  EXPECT_TRUE(contains(found[2].why, "send_only"));
}

Offer partial(std::vector<uint32_t> keys) {
  Offer out = offer(0, {}, kReceive);
  for (const uint32_t key : keys)
    out.entries.push_back({"k" + std::to_string(key), DType::kFloat32, {2, 3}, 9});
  out.partial = true;
  return out;
}

TEST(Election, AMemberWithFewerKeysFetchesTheRest) {
  const std::vector<Offer> offers = {partial({1}), offer(5, {1, 9, 3}), partial({}),
                                     offer(4, {1, 9, 8})};
  EXPECT_TRUE(misfits(offers_of(offers, {false, true, false, true}), {}).empty());
  for (const bool trained : {false, true}) {
    const Election result = elect(offers_of(offers, {false, trained, false, trained}), {});
    EXPECT_EQ(result.refusal, "");
    EXPECT_EQ(result.agreed, state_of(5, {1, 9, 3}));
    EXPECT_EQ(result.sources, (std::vector<PeerId>{{2}}));
    EXPECT_EQ(result.receivers, (std::vector<PeerId>{{1}, {3}, {4}}));
    EXPECT_EQ(result.keys, (std::vector<uint32_t>{0, 1, 2}));
  }
}

TEST(Election, AMemberWithFewerKeysMayHaveNoOthers) {
  Offer odd = partial({0, 1});
  odd.entries[1].shape = {7};
  const std::vector<Offer> offers = {partial({0, 3}), offer(5, {1, 2}), odd};
  const auto found = misfits(offers_of(offers, {false, true, false}), {});
  ASSERT_EQ(peers(found), (std::vector<PeerId>{{1}, {3}}));
  EXPECT_TRUE(contains(found[0].why, "\"k3\" is float32[2, 3] at the newcomer and absent"));
  EXPECT_TRUE(contains(vote(offers).refusal, "\"k3\" is float32[2, 3] at rank 0 and absent"));
}

TEST(Election, FewerKeysAreNeverElected) {
  EXPECT_TRUE(contains(vote({partial({0}), partial({1})}).refusal, "all are receive_only"));
  EXPECT_TRUE(contains(vote({partial({0}), offer(0, {1}, kReceive)}).refusal, "receive_only"));
  Offer wrong = partial({0});
  EXPECT_TRUE(well_formed(wrong));
  wrong.strategy = SyncStrategy::kEnforcePopular;
  EXPECT_FALSE(well_formed(wrong));
}

TEST(Election, AmongFoundersADifferenceIsEverybodys) {
  Offer wide = offer(0, {9});
  wide.entries[0].shape = {7};
  const std::vector<Offer> offers = {offer(0, {1}), wide};
  EXPECT_TRUE(misfits(offers_of(offers, {false, false}), {}).empty());
  EXPECT_TRUE(misfits(offers_of(offers, {true, true}), {}).empty());
}

// Tries all triples of offers that are possible around a record, and checks each result.
TEST(Election, NobodyWhoMaySendIsSetBackWhateverTheOffers) {
  std::vector<Offer> all;
  for (uint64_t revision = 4; revision <= 7; ++revision) {
    const uint64_t contents = revision == 5 || revision == 6 ? 2 : 1;
    for (uint64_t content = 1; content <= contents; ++content) {
      for (const auto strategy : {SyncStrategy::kEnforcePopular, kSendOnly, kReceive}) {
        all.push_back(offer(revision, {content}, strategy));
      }
    }
  }
  size_t agreed = 0, removed_some = 0;  // 0: nothing was tested
  const size_t kinds = all.size() * 2, triples = kinds * kinds * kinds;
  for (const bool has_record : {false, true}) {
    const auto recorded = has_record ? std::optional(state_of(5, {1})) : std::nullopt;
    for (size_t triple = 0; triple < triples; ++triple) {
      std::vector<OfferOf> offers, trained;
      for (size_t rank = 0, rest = triple; rank < 3; ++rank, rest /= kinds) {
        offers.push_back({{rank + 1}, &all[rest % kinds / 2], rest % 2 == 1});
        if (offers.back().trained) trained.push_back(offers.back());
      }
      const std::vector<PeerId> wrong = peers(misfits(offers, recorded));
      ASSERT_TRUE(wrong.empty() || !trained.empty()) << triple;
      std::erase_if(offers, [&](const OfferOf& one) {
        const bool removed = std::find(wrong.begin(), wrong.end(), one.peer) != wrong.end();
        EXPECT_FALSE(removed && one.trained) << triple;
        return removed;
      });
      removed_some += wrong.empty() ? 0 : 1;
      const Election result = elect(offers, recorded);
      const auto sends = [](const OfferOf& one) { return one.offer->strategy != kReceive; };
      if (std::any_of(trained.begin(), trained.end(), sends)) {
        ASSERT_EQ(result.refusal.empty(), elect(trained, recorded).refusal.empty())
            << triple << ": a newcomer has changed whether the others agree";
        ASSERT_EQ(result.agreed, elect(trained, recorded).agreed) << triple;
      }
      if (!result.refusal.empty()) continue;
      ++agreed;
      for (const OfferOf& one : offers) {
        ASSERT_TRUE(!sends(one) || one.offer->revision <= result.agreed.revision) << triple;
      }
      ASSERT_TRUE(!recorded || result.agreed == *recorded || result.agreed.revision == 6) << triple;
    }
  }
  EXPECT_GT(agreed, 20'000u);
  EXPECT_GT(removed_some, 5'000u);
}

// The size of a plan hardly depends on the number of receivers.
TEST(Election, APlanThatFitsNoMessageIsRefused) {
  const std::vector<uint64_t> old_hashes(protocol::kStateKeysMax, 1),
      new_hashes(protocol::kStateKeysMax, 2);
  std::vector<Offer> offers = {offer(1, new_hashes), offer(0, old_hashes, kReceive)};
  EXPECT_EQ(vote(offers).refusal, "");
  for (Offer& one : offers) {
    for (protocol::StateEntry& entry : one.entries) entry.key.insert(0, 200, 'k');
  }
  EXPECT_TRUE(contains(vote(offers).refusal, "too finely divided"));
}

TEST(Election, OffersAreSortedByKeyWithoutRepetition) {
  Offer one = offer(1, {1, 2});
  EXPECT_TRUE(well_formed(one));
  EXPECT_TRUE(well_formed(Offer{}));
  std::swap(one.entries[0], one.entries[1]);
  EXPECT_FALSE(well_formed(one));
  one.entries[1] = one.entries[0];
  EXPECT_FALSE(well_formed(one));
  one = offer(1, {1});
  one.entries[0].shape = {-1};
  EXPECT_FALSE(well_formed(one)) << "others may take it as it is";
}

TEST(Election, NoRevisionFollowsTheHighestOne) {
  const AgreedState highest = state_of(UINT64_MAX, {1});
  EXPECT_EQ(vote({offer(UINT64_MAX, {1})}, highest).agreed, highest);
  EXPECT_NE(vote({offer(0, {2})}, highest).refusal, "") << "the agreed revision never falls";
}

}  // namespace
}  // namespace pccl::master
