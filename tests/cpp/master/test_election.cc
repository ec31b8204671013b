#include "master/election.h"

#include <gtest/gtest.h>

#include "csrc/protocol/limits.h"
#include "csrc/protocol/state.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::Offer;
using protocol::SyncStrategy;
using protocol::Transfer;

// Peer 1 has rank 0, and so on.
Election vote(const std::vector<Offer>& offers, std::optional<AgreedState> recorded = {}) {
  std::vector<OfferOf> of;
  for (size_t rank = 0; rank < offers.size(); ++rank) of.push_back({{rank + 1}, &offers[rank]});
  return elect(of, recorded);
}
AgreedState state(uint64_t revision, const std::vector<uint64_t>& hashes) {
  return {revision, protocol::state_hash(offer(revision, hashes).entries)};
}

TEST(Election, NothingIsSentWhenAllHaveTheSame) {
  const Election result = vote({offer(3, {1, 2}), offer(3, {1, 2})});
  EXPECT_EQ(result.refusal, "");
  EXPECT_EQ(result.agreed, state(3, {1, 2}));
  EXPECT_TRUE(result.transfers.empty());
}

TEST(Election, TheContentOfMostWins) {
  const Election result = vote({offer(9, {7, 2}), offer(3, {1, 2}), offer(3, {1, 2})});
  EXPECT_EQ(result.agreed, state(3, {1, 2}));
  EXPECT_EQ(result.transfers, (std::vector{Transfer{{2}, {1}, {0}}})) << "only what differs";
}

TEST(Election, ATieGoesToTheHigherRevisionThenToTheLowerRank) {
  EXPECT_EQ(vote({offer(3, {1}), offer(4, {2})}).agreed, state(4, {2}));
  EXPECT_EQ(vote({offer(4, {1}), offer(4, {2})}).agreed, state(4, {1}));
  EXPECT_EQ(vote({offer(4, {1}), offer(4, {2}), offer(4, {2}), offer(4, {1})}).agreed,
            state(4, {1}));
}

TEST(Election, WhoOnlyReceivesIsNotCountedButServed) {
  const Election result = vote(
      {offer(0, {9}, kReceive), offer(0, {9}, kReceive), offer(5, {1}), offer(0, {9}, kReceive)});
  EXPECT_EQ(result.agreed, state(5, {1}));
  EXPECT_EQ(result.transfers, (std::vector{Transfer{{3}, {1}, {0}}, Transfer{{3}, {2}, {0}},
                                           Transfer{{3}, {4}, {0}}}));
}

TEST(Election, SourcesTakeTurns) {
  const Election result = vote({offer(0, {9, 8}, kReceive), offer(5, {1, 2}), offer(5, {1, 2}),
                                offer(0, {1, 8}, kReceive), offer(0, {9, 8}, kReceive)});
  EXPECT_EQ(result.transfers, (std::vector{Transfer{{2}, {1}, {0, 1}}, Transfer{{3}, {4}, {1}},
                                           Transfer{{2}, {5}, {0, 1}}}));
  const protocol::SyncPlan plan = plan_for({3}, 17, result);
  EXPECT_EQ(plan.number, 17u);
  EXPECT_EQ(plan.revision, 5u);
  EXPECT_EQ(plan.transfers, (std::vector{Transfer{{3}, {4}, {1}}}));
}

TEST(Election, AnOlderRevisionOfTheSameContentHasNothingToFetch) {
  const Election result = vote({offer(4, {1}), offer(5, {1}), offer(5, {1})});
  EXPECT_EQ(result.agreed, state(5, {1}));
  EXPECT_TRUE(result.transfers.empty());
}

TEST(Election, WhoMustNotBeOverwrittenIsNot) {
  const Election result = vote({offer(5, {1}), offer(5, {2}, kSendOnly), offer(5, {1})});
  EXPECT_EQ(result.refusal,
            "rank 1 must not be overwritten (send_only), but the state of rank 0 at "
            "revision 5 is the one most ranks have");
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
            "\"k1\" is float32[2, 3] and float32[6]; \"z\" is absent and int64[]");
}

TEST(Election, ARevisionAdvancesByOneFromWhatWasAgreed) {
  const AgreedState recorded = state(5, {1});
  EXPECT_EQ(vote({offer(5, {1})}, recorded).refusal, "");
  EXPECT_EQ(vote({offer(6, {2})}, recorded).refusal, "");
  EXPECT_NE(vote({offer(5, {2})}, recorded).refusal, "") << "the same revision, other bits";
  EXPECT_NE(vote({offer(7, {2})}, recorded).refusal, "");
  const std::string refusal = vote({offer(0, {1})}, recorded).refusal;
  EXPECT_TRUE(contains(refusal, "has revision 0")) << refusal;
  EXPECT_TRUE(contains(refusal, "agreed on revision 5")) << refusal;
}

TEST(Election, NewcomersDoNotOutvoteTheRecord) {
  const AgreedState recorded = state(5, {1});
  const Offer fresh = offer(0, {9}), same_number = offer(5, {9});
  EXPECT_EQ(vote({offer(5, {1}), fresh, fresh}, recorded).agreed, recorded);
  EXPECT_EQ(vote({same_number, same_number, offer(6, {2})}, recorded).agreed, state(6, {2}));
  EXPECT_NE(vote({offer(5, {1}, kReceive), fresh, fresh}, recorded).refusal, "");
}

TEST(Election, APlanThatFitsNoMessageIsRefused) {
  std::vector<Offer> offers;
  std::vector<uint64_t> old_hashes(protocol::kStateKeysMax, 1),
      new_hashes(protocol::kStateKeysMax, 2);
  offers.push_back(offer(1, new_hashes));
  EXPECT_EQ(vote({offers[0], offer(0, old_hashes, kReceive)}).refusal, "");
  for (int i = 0; i < 60; ++i) offers.push_back(offer(0, old_hashes, kReceive));
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
}

}  // namespace
}  // namespace pccl::master
