#include "master/topology/planner.h"

#include <gtest/gtest.h>

#include <chrono>

namespace pccl::master::topology {
namespace {

using protocol::PatternChoice;

constexpr double kMillion = 1e6;

// The path from each member to the next one in `order` is fast, all others are slow.
PlanQuestion one_good_ring(const Tour& order, double fast, double slow) {
  const size_t members = order.size();
  Paths paths(members);
  for (uint32_t from = 0; from < members; ++from) {
    for (uint32_t to = 0; to < members; ++to) {
      paths.rate.at(from, to) = slow;
      paths.hop.at(from, to) = 0.01;
    }
  }
  for (size_t place = 0; place < members; ++place)
    paths.rate.at(order[place], order[(place + 1) % members]) = fast;
  return {Network(std::move(paths)), PatternChoice::kAny, {}, true, 64 << 20, {}};
}

TEST(Planner, TakesTheRingWhereItsPathsAreFast) {
  const PlanQuestion question = one_good_ring({0, 3, 1, 4, 2, 5}, 50 * kMillion, 2 * kMillion);
  const Plan plan = fastest_plan(question);
  EXPECT_EQ(plan.ring, (Tour{0, 3, 1, 4, 2, 5}));
  EXPECT_TRUE(plan.shares.empty() || !plan.direct.contain(64 << 20));
  const Plan joined{{0, 1, 2, 3, 4, 5}, {}, {}};
  EXPECT_LT(plan_seconds(question.network, plan, kGiB) * 10,
            plan_seconds(question.network, joined, kGiB));
}

TEST(Planner, TakesTheDirectPatternWhereAnUplinkIsSlow) {
  PlanQuestion question = one_good_ring({0, 1, 2, 3}, 100 * kMillion, 100 * kMillion);
  question.network.out[2] = 6 * kMillion;
  const Plan plan = fastest_plan(question);
  ASSERT_FALSE(plan.shares.empty());
  EXPECT_LE(plan.shares[2], 1);
  EXPECT_TRUE(plan.direct.contain(64 << 20));
  const Plan ring{plan.ring, {}, {}};
  EXPECT_GE(plan_seconds(question.network, ring, kGiB),
            1.35 * plan_seconds(question.network, plan, kGiB));
}

TEST(Planner, IsCautiousAboutTheDirectPattern) {
  PlanQuestion question = one_good_ring({0, 1, 2, 3}, 100 * kMillion, 100 * kMillion);
  question.network.out[2] = 6 * kMillion;
  const Plan plan = fastest_plan(question), ring{plan.ring, {}, {}};
  const auto& network = question.network;
  EXPECT_DOUBLE_EQ(cautious_seconds(network, plan, kGiB), 1.3 * plan_seconds(network, plan, kGiB));
  EXPECT_EQ(cautious_seconds(network, ring, kGiB), plan_seconds(network, ring, kGiB));
}

TEST(Planner, ObeysTheWishForAPattern) {
  PlanQuestion question = one_good_ring({0, 1, 2, 3}, 100 * kMillion, 100 * kMillion);
  question.network.out[2] = 6 * kMillion;
  question.pattern = PatternChoice::kRing;
  EXPECT_TRUE(fastest_plan(question).shares.empty());
  question.pattern = PatternChoice::kDirect;
  question.shares = {0, 256, 0, 0};
  EXPECT_EQ(fastest_plan(question).shares, question.shares);
  EXPECT_EQ(fastest_plan(question).direct, protocol::DirectSizes{});
  question.may_be_direct = false;
  EXPECT_TRUE(fastest_plan(question).shares.empty()) << "some pair may have no link";
}

TEST(Planner, TwoMembersNeedNoPlan) {
  const PlanQuestion question = one_good_ring({0, 1}, 100 * kMillion, 100 * kMillion);
  EXPECT_EQ(fastest_plan(question), (Plan{{0, 1}, {}, {}}));
}

TEST(Planner, TheSameQuestionHasTheSameAnswer) {
  Tour order(24);
  for (uint32_t place = 0; place < 24; ++place) order[place] = place * 7 % 24;
  PlanQuestion question = one_good_ring(order, 50 * kMillion, 2 * kMillion);
  question.effort.kicks = 2000;
  const Plan plan = fastest_plan(question);
  EXPECT_EQ(plan.ring, order);
  EXPECT_EQ(fastest_plan(question), plan);
}

}  // namespace
}  // namespace pccl::master::topology
