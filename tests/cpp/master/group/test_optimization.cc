#include "master/group/optimization.h"

#include "master/members/connections.h"
#include "tests/cpp/master/optimization_test.h"

namespace pccl::master {
namespace {

using protocol::LinkState;
using protocol::ProbeReport;
using protocol::RankPair;

TEST_F(OptimizationTest, MeasuresAllPairsAndAdoptsAFasterRing) {
  found({"a", "b", "c", "d"});
  make_ring_fast({0, 2, 1, 3});
  vote(1, 0);
  EXPECT_EQ(run_rounds(), 3u + 2u) << "each path is much slower than its ends, in one direction";
  EXPECT_EQ(h.last<protocol::Answer>("a"), nullptr) << "the new epoch comes first";
  EXPECT_TRUE(h.last<protocol::FreezeRequest>("a")->lost.empty());
  renew(1, 0);
  const auto& start = *h.last<protocol::EpochStart>("a");
  EXPECT_EQ(start.epoch, epoch(2));
  EXPECT_EQ(start.generation, epoch(1));
  EXPECT_EQ(start.ring, (std::vector<uint32_t>{0, 2, 1, 3}));
  EXPECT_TRUE(start.joined.empty() && start.left.empty());
  const auto plan = this->plan();
  EXPECT_TRUE(plan.adopted);
  EXPECT_EQ(plan.epoch, epoch(2).value);
  EXPECT_EQ(plan.ring, start.ring);
  EXPECT_EQ(plan.measured.size(), 6u);
  EXPECT_TRUE(plan.missing.empty());
  EXPECT_EQ(plan.note, "");
  EXPECT_GT(plan.before_us, 10 * plan.after_us);
  ASSERT_EQ(plan.rates.size(), 16u);
  EXPECT_EQ(plan.rates[0 * 4 + 2], 200'000'000u);
  EXPECT_EQ(plan.rates[2 * 4 + 0], 5'000'000u);
  EXPECT_EQ(plan.rates[0], 0u);
  for (const std::string& name : names_) EXPECT_EQ(this->plan(name), plan) << name;
}

TEST_F(OptimizationTest, KeepsAPlanThatIsGoodEnough) {
  found({"a", "b", "c", "d"});
  make_ring_fast({0, 1, 2, 3});
  vote(1, 0);
  run_rounds();
  EXPECT_FALSE(plan().adopted);
  EXPECT_EQ(plan().epoch, epoch(1).value);
  EXPECT_EQ(plan().before_us, plan().after_us);
  make_ring_fast({0, 1, 2, 3}, 190, 5);
  vote(1, 1);
  run_rounds();
  EXPECT_FALSE(plan().adopted);
}

TEST_F(OptimizationTest, AReportOfAnyNumberOfBytesHasARate) {
  found({"a", "b"});
  vote(1, 0);
  for (const char* name : {"a", "b"}) {
    const auto* probe = h.last<protocol::Probe>(name);
    ASSERT_NE(probe, nullptr);
    h.say(name, protocol::ProbeReport{probe->round, probe->peer, UINT64_MAX, 1});
  }
  EXPECT_EQ(plan().measured.size(), 1u);
  EXPECT_GT(plan().rates.at(1), uint64_t{1} << 40);
}

TEST_F(OptimizationTest, TheRestOfThePairsIsForTheNextCall) {
  found({"a", "b", "c", "d"});
  vote(1, 0, 1600);
  EXPECT_EQ(run_rounds(), 2u);
  renew_if_adopted(1, 0);  // paths that are only guessed seem slow
  EXPECT_TRUE(plan().adopted);
  EXPECT_EQ(plan().measured.size(), 4u);
  EXPECT_EQ(plan().missing.size(), 2u);
  EXPECT_TRUE(contains(plan().note, "the budget of 1.6 s was too short for 2 pairs"))
      << plan().note;
  vote(2, 1, 800);
  EXPECT_EQ(run_rounds(), 1u);
  EXPECT_EQ(plan().measured.size(), 2u);
  EXPECT_TRUE(plan().missing.empty());
}

TEST_F(OptimizationTest, ALimitOfBytesIsSharedByThePairs) {
  found({"a", "b", "c", "d"});
  max_bytes_ = 80'000'000;
  vote(1, 0);
  EXPECT_EQ(h.last<protocol::Probe>("a")->bytes_max, 10'000'000u) << "both ways, with a spare turn";
  EXPECT_EQ(h.last<protocol::Probe>("b")->bytes_max, 10'000'000u);
  run_rounds();
  EXPECT_EQ(plan().measured.size(), 6u);
}

TEST_F(OptimizationTest, AFewBytesMeasureAFewPairs) {
  found({"a", "b", "c", "d"});
  max_bytes_ = 2 * protocol::kProbesBytesMin;
  vote(1, 0);
  EXPECT_EQ(run_rounds(), 2u) << "each member has bytes for two turns";
  renew_if_adopted(1, 0);
  EXPECT_EQ(plan().measured.size(), 4u);
  EXPECT_TRUE(contains(plan().note,
                       "max_bytes=4194304 was too small for 2 pairs: the next call "
                       "goes on with them"))
      << plan().note;
}

// A path that seems slow is measured again. It can carry what it has carried once.
TEST_F(OptimizationTest, TheBetterOfTwoTurnsCounts) {
  found({"a", "b", "c", "d"});
  rate_[0][2] = rate_[3][1] = 20;
  vote(1, 0);
  EXPECT_EQ(run_rounds(3), 3u);
  rate_[0][2] = 90;
  rate_[3][1] = 15;
  rate_[2][0] = 60;
  EXPECT_EQ(run_rounds(), 1u) << "both pairs at once";
  EXPECT_EQ(plan().rates[0 * 4 + 2], 90'000'000u);
  EXPECT_EQ(plan().rates[3 * 4 + 1], 20'000'000u);
  EXPECT_EQ(plan().rates[2 * 4 + 0], 100'000'000u);
}

TEST_F(OptimizationTest, WithoutABudgetItPlansWithWhatIsKnown) {
  found({"a", "b", "c"});
  vote(1, 0, 0);
  EXPECT_EQ(run_rounds(), 0u);
  EXPECT_TRUE(plan().measured.empty());
  EXPECT_EQ(plan().missing, (std::vector<RankPair>{{0, 1}, {0, 2}, {1, 2}}));
  EXPECT_TRUE(contains(plan().note, "the budget is 0, so nothing was measured")) << plan().note;
}

TEST_F(OptimizationTest, APeerThatDoesNotReportCostsItsPair) {
  found({"a", "b", "c", "d"});
  vote(1, 0);
  for (int round = 0; round < 3; ++round) {
    for (const std::string& name : names_) {
      if (name != "d" && is_probing(name)) report(name);
    }
    h.tick_with(names_, 8);
  }
  EXPECT_EQ(answer().code, Code::kOk);
  EXPECT_EQ(plan().measured, (std::vector<RankPair>{{0, 1}, {0, 2}, {1, 2}}));
  EXPECT_EQ(plan().missing, (std::vector<RankPair>{{0, 3}, {1, 3}, {2, 3}}));
  EXPECT_TRUE(contains(plan().note, "no rate came from the pairs of ranks 0-3, 1-3, 2-3"))
      << plan().note;
}

TEST_F(OptimizationTest, ADeadLinkIsNotMeasured) {
  found({"a", "b", "c"});
  h.say("a", protocol::LinkReport{h.id("b"), LinkState::kDown, "reset", 1});
  vote(1, 0);
  EXPECT_EQ(run_rounds(), 2u);
  EXPECT_EQ(plan().missing, (std::vector<RankPair>{{0, 1}}));
}

TEST_F(OptimizationTest, ASearchThatFindsNothingHasABound) {
  found({"a", "b", "c"});
  h.hold_searches = true;
  vote(1, 0);
  run_rounds();
  EXPECT_EQ(h.last<protocol::Answer>("a"), nullptr);
  h.tick_with(names_, 121);
  EXPECT_EQ(answer().code, Code::kTopology);
  EXPECT_TRUE(contains(answer().text, "has found no plan within 60 s")) << answer().text;
  h.hold_searches = false;
  h.search();  // it comes too late
}

TEST_F(OptimizationTest, AReportThatMakesNoSenseBreaksARule) {
  found({"a", "b"});
  h.say("a", ProbeReport{1, h.id("a"), 1, 1});
  EXPECT_TRUE(contains(h.warnings().back(), "about itself"));
}

}  // namespace
}  // namespace pccl::master
