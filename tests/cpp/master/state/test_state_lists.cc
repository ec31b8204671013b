#include "master/state/state_lists.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using Peers = std::vector<PeerId>;

std::vector<OfferOf> all_of(const std::vector<protocol::Offer>& offers) {
  std::vector<OfferOf> all;
  for (size_t rank = 0; rank < offers.size(); ++rank) all.push_back({{rank + 1}, &offers[rank]});
  return all;
}

TEST(StateLists, NobodyIsAskedIfAllOfferTheSame) {
  StateLists lists;
  const std::vector<protocol::Offer> offers{unlisted(offer(1, {5})), offer(1, {5})};
  std::vector<OfferOf> all = all_of(offers);
  EXPECT_EQ(lists.ask(all, false), Peers{});
  EXPECT_FALSE(lists.awaits_any());
  lists.add_to(all);
  ASSERT_NE(all[0].entries, nullptr);
  EXPECT_EQ(*all[0].entries, offers[1].entries) << "the list came with the other";
  EXPECT_EQ(all[1].entries, nullptr) << "it has its own";
}

TEST(StateLists, AListIsComparedWithThatOfATrainedVoter) {
  StateLists lists;
  const std::vector<protocol::Offer> offers{offer(1, {5}), unlisted(offer(1, {5}))};
  std::vector<OfferOf> all = all_of(offers);
  all[1].trained = true;
  EXPECT_EQ(lists.ask(all, false), (Peers{{2}})) << "the digests are alike, but one list is here";
}

// The newcomer has made a list whose digest is that of the members.
TEST(StateLists, TheListOfATrainedVoterCounts) {
  const protocol::Offer crafted = offer(1, {5, 6});
  protocol::Offer trained = unlisted(crafted), other = unlisted(offer(0, {7}));
  for (const bool listed : {true, false}) {
    StateLists lists;
    const std::vector<protocol::Offer> offers{listed ? crafted : unlisted(crafted), trained, other};
    std::vector<OfferOf> all = all_of(offers);
    all[1].trained = true;
    EXPECT_EQ(lists.ask(all, false), (Peers{{2}, {3}}));
    lists.check();
    lists.add_to(all);
    EXPECT_EQ(all[1].entries, nullptr) << "its list is on its way";
  }
}

TEST(StateLists, OneOfEachDigestIsAskedForItsList) {
  StateLists lists;
  const std::vector<protocol::Offer> offers{unlisted(offer(1, {5})), unlisted(offer(0, {6})),
                                            unlisted(offer(1, {5})), offer(0, {7})};
  std::vector<OfferOf> all = all_of(offers);
  EXPECT_EQ(lists.ask(all, false), (Peers{{1}, {2}})) << "4 has said it";
  EXPECT_TRUE(lists.awaits({1}) && lists.awaits({2}) && !lists.awaits({3}));
  EXPECT_EQ(lists.take({1}, offer(1, {5}).entries), "");
  EXPECT_EQ(lists.take({2}, offer(0, {6}).entries), "");
  EXPECT_FALSE(lists.awaits_any());
  lists.check();
  EXPECT_EQ(lists.ask(all, false), Peers{}) << "all are known";
  lists.add_to(all);
  EXPECT_EQ(*all[0].entries, offer(1, {5}).entries);
  EXPECT_EQ(all[2].entries, all[0].entries);
  EXPECT_EQ(all[3].entries, nullptr) << "it has its own";
  lists.forget();
  EXPECT_EQ(lists.ask(all, false), (Peers{{1}, {2}}));
}

TEST(StateLists, ForAnInterruptedElectionEachListIsNeeded) {
  StateLists lists;
  const std::vector<protocol::Offer> offers{unlisted(offer(1, {5})), unlisted(offer(1, {5}))};
  EXPECT_EQ(lists.ask(all_of(offers), true), (Peers{{1}}));
}

TEST(StateLists, AWrongListIsRefused) {
  StateLists lists;
  const std::vector<protocol::Offer> offers{unlisted(offer(1, {5, 6})), unlisted(offer(1, {7, 7}))};
  lists.ask(all_of(offers), false);
  EXPECT_EQ(lists.take({1}, offer(1, {5}).entries),
            "its list of entries is not the one that it has offered");
  std::vector<protocol::StateEntry> odd = offer(1, {5, 6}).entries;
  std::swap(odd[0], odd[1]);
  EXPECT_EQ(lists.take({1}, odd),
            "its list of entries is not sorted by key, or has senseless shapes");
  EXPECT_TRUE(lists.awaits({1}));
}

}  // namespace
}  // namespace pccl::master
