#include "master/state/drifts.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

class DriftsTest : public testing::Test {
 protected:
  // kA, kB and kC, or the first of them, make these offers. `newcomer`: was not trained here.
  std::vector<std::string> sync(const std::vector<protocol::Offer>& offers, PeerId newcomer = {}) {
    elect_among(offers, newcomer);
    recorded = election.agreed;
    return drifts.agreed({0});
  }
  void elect_among(const std::vector<protocol::Offer>& offers, PeerId newcomer = {}) {
    std::vector<OfferOf> of;
    for (size_t rank = 0; rank < offers.size(); ++rank) {
      const PeerId peer{rank + 1};
      of.push_back({peer, &offers[rank], peer != newcomer, std::string(1, char('a' + rank))});
    }
    election = elect(of, recorded);
    ASSERT_EQ(election.refusal, "");
    drifts.elected(of, recorded, election);
    drifts.check();
  }
  std::optional<AgreedState> recorded;
  Election election;
  Drifts drifts;
};

TEST_F(DriftsTest, TheCorrectedMemberIsNamed) {
  EXPECT_EQ(sync({offer(3, {1, 1}), offer(3, {1, 1}), offer(3, {1, 1})}), Lines{});
  const Lines warnings = sync({offer(4, {5, 1}), offer(4, {5, 1}), offer(4, {6, 1})});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].starts_with("rank 2 (c) drifts: ")) << warnings[0];
  EXPECT_TRUE(contains(warnings[0], "\"k0\" (24 bytes) at revision 4 (1 correction so far)"))
      << warnings[0];
  EXPECT_EQ(drifts.all(), (std::map<PeerId, protocol::Drift>{{kC, {4, "\"k0\"", 24, 1}}}));
}

TEST_F(DriftsTest, FoundersDoNotDrift) {
  EXPECT_EQ(sync({offer(3, {1}), offer(3, {2}), offer(3, {2})}), Lines{});
  EXPECT_TRUE(drifts.all().empty());
}

TEST_F(DriftsTest, ANewcomerDoesNotDrift) {
  sync({offer(3, {1}), offer(3, {1})});
  sync({offer(4, {5}), offer(4, {5}), offer(4, {6})}, kC);
  EXPECT_TRUE(drifts.all().empty());
}

TEST_F(DriftsTest, AMemberThatHasMissedTheStepDoesNotDrift) {
  sync({offer(3, {1}), offer(3, {1}), offer(3, {1})});
  sync({offer(4, {5}), offer(3, {1}), offer(2, {7})});
  EXPECT_TRUE(drifts.all().empty());
}

TEST_F(DriftsTest, AnotherStrategyIsNoDrift) {
  sync({offer(3, {1}), offer(3, {1})});
  sync({offer(4, {5}), offer(4, {6}, kReceive)});
  EXPECT_TRUE(drifts.all().empty());
}

TEST_F(DriftsTest, ACallThatFailsCorrectsNobody) {
  sync({offer(3, {1}), offer(3, {1})});
  elect_among({offer(4, {5}), offer(4, {6})});
  EXPECT_TRUE(drifts.all().empty());
  EXPECT_EQ(sync({offer(4, {5}), offer(4, {5})}), Lines{}) << "the next call has other offers";
  elect_among({offer(5, {7}), offer(5, {8})});
  EXPECT_EQ(sync({offer(5, {7}), offer(5, {8})}).size(), 1u);
  EXPECT_EQ(drifts.all().at(kB).count, 1u) << "it is corrected once, by the second call";
}

TEST_F(DriftsTest, TheCountOfEachMemberGrows) {
  sync({offer(0, {1}), offer(0, {1}), offer(0, {1})});
  size_t warnings = 0;
  for (uint64_t revision = 1; revision <= 20; ++revision)
    warnings += sync({offer(revision, {5}), offer(revision, {6}), offer(revision, {5})}).size();
  EXPECT_EQ(warnings, 5u) << "at 1, 2, 4, 8 and 16";
  EXPECT_EQ(drifts.all().at(kB).count, 20u);
  EXPECT_EQ(drifts.all().at(kB).revision, 20u);
}

TEST_F(DriftsTest, OnlyVotersAreRemembered) {
  sync({offer(3, {1}), offer(3, {1}), offer(3, {1})});
  sync({offer(4, {5}), offer(4, {5}), offer(4, {6})});
  EXPECT_TRUE(drifts.all().contains(kC));
  sync({offer(5, {7}), offer(5, {7})});
  EXPECT_TRUE(drifts.all().empty());
}

TEST_F(DriftsTest, TheWarningNamesThePeerGroup) {
  sync({offer(3, {1}), offer(3, {1})});
  elect_among({offer(4, {5}), offer(4, {6})});
  const Lines warnings = drifts.agreed({2});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].starts_with("rank 1 (b) of peer group 2 drifts: ")) << warnings[0];
}

}  // namespace
}  // namespace pccl::master
