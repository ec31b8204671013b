#include "master/group/budgets.h"

#include "tests/cpp/master/optimization_test.h"

namespace pccl::master {
namespace {

using BudgetsTest = OptimizationTest;

TEST_F(BudgetsTest, BudgetsThatDifferAreAMismatch) {
  found({"a", "b", "c"});
  vote("a", 1, 0, 10'000);
  vote("b", 1, 0, 2500);
  vote("c", 1, 0, 10'000);
  EXPECT_EQ(answer().code, Code::kMismatch);
  EXPECT_EQ(answer().text,
            "ranks gave optimize_topology different budgets: rank 1 gave 2.5 s; ranks 0 and 2 gave "
            "10 s. All ranks must give the same budget");
  EXPECT_EQ(answer("b").text, answer().text);
}

TEST_F(BudgetsTest, LimitsOfBytesThatDifferAreAMismatch) {
  found({"a", "b", "c"});
  const auto vote = [&](const std::string& name, uint64_t max_bytes) {
    protocol::Vote cast{0, kOptimize, {}, epoch(1)};
    cast.budget_ms = kBudget;
    cast.max_bytes = max_bytes;
    h.say(name, cast);
  };
  vote("a", 0);
  vote("b", 5'000'000);
  vote("c", 0);
  EXPECT_EQ(answer().code, Code::kMismatch);
  EXPECT_EQ(answer().text,
            "ranks gave optimize_topology different max_bytes: ranks 0 and 2 gave no limit; rank 1 "
            "gave 5000000. All ranks must give the same max_bytes");
  EXPECT_EQ(answer("b").text, answer().text);
}

}  // namespace
}  // namespace pccl::master
