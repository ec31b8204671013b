#include "master/group/probation.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using std::chrono::milliseconds;
constexpr Duration kProbationTime = std::chrono::seconds(2);

// A clock that advances by kLookAgain, the least time between two checks.
struct ProbationTest : testing::Test {
  // Checks until `time` has passed. Returns the first misfits that were found.
  std::vector<Misfit> run(Duration time, const std::string& awaited, const std::string& elsewhere) {
    const Instant until = now + time;
    while (now < until) {
      now = now + Probation::kLookAgain;
      EXPECT_TRUE(probation.due(now));
      const auto found = probation.look({{kA, awaited, elsewhere, {}}}, kProbationTime, now);
      if (!found.empty()) return found;
    }
    return {};
  }
  Probation probation{"PCCL_FIRST_CALL_TIMEOUT"};
  Instant now;
};

TEST_F(ProbationTest, ANewcomerThatNoMemberAwaitsHasNoLimit) {
  EXPECT_TRUE(run(10 * kProbationTime, "", "").empty());
  EXPECT_FALSE(probation.deadline());
}

TEST_F(ProbationTest, TimeCountsFromWhenSomebodyWaits) {
  EXPECT_TRUE(run(kProbationTime, "", "").empty());
  const Instant start = now + Probation::kLookAgain;
  const auto found = run(2 * kProbationTime, "sync_shared_state", "");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].peer, kA);
  EXPECT_EQ(found[0].why, "it did not call sync_shared_state within 2 s (PCCL_FIRST_CALL_TIMEOUT)");
  EXPECT_EQ(now, start + kProbationTime + Probation::kLookAgain)
      << "the second look that finds it so";
}

TEST_F(ProbationTest, ACallEndsTheWait) {
  EXPECT_TRUE(run(kProbationTime - milliseconds(100), "a", "").empty());
  EXPECT_TRUE(run(Probation::kLookAgain, "", "").empty());
  EXPECT_TRUE(run(kProbationTime - milliseconds(100), "b", "").empty());
}

TEST_F(ProbationTest, ANewcomerThatWaitsElsewhereIsFoundSoon) {
  const Instant start = now;
  const auto found = run(kProbationTime, "sync_shared_state", "barrier (#0)");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].why, "it called barrier (#0), and the others sync_shared_state");
  EXPECT_LE(now - start, Probation::kElsewhereMax + 3 * Probation::kLookAgain);
}

TEST_F(ProbationTest, ACallElsewhereThatIsFollowedByTheRightOneIsNoMistake) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(run(Probation::kElsewhereMax, "sync_shared_state", "barrier (#0)").empty());
    EXPECT_TRUE(run(Probation::kLookAgain, "", "").empty());
  }
}

TEST_F(ProbationTest, TakingPartRestartsItsTime) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(run(kProbationTime - milliseconds(100), "a", "").empty());
    probation.restart(kA);
  }
}

TEST_F(ProbationTest, LooksAreRareAndNoneIsForgotten) {
  EXPECT_TRUE(probation.due(now));
  probation.look({{kA, "a", "", ""}}, kProbationTime, now);
  EXPECT_EQ(probation.deadline(), now + kProbationTime);
  const Instant soon = now + milliseconds(1);
  EXPECT_FALSE(probation.due(soon)) << "something has happened, and is looked at later";
  EXPECT_EQ(probation.deadline(), now + Probation::kLookAgain);
  EXPECT_TRUE(probation.due(now + Probation::kLookAgain));
}

// The first message from a peer that was silent may be older than its call.
TEST_F(ProbationTest, ASilentPeerIsNotOverdueBeforeTwoLooksHaveHeardIt) {
  Probation::Seen silent{kA, "a", "", ""};
  silent.silent = true;
  for (now = now + Probation::kLookAgain; now < Instant{} + 2 * kProbationTime;
       now = now + Probation::kLookAgain) {
    EXPECT_TRUE(probation.look({silent}, kProbationTime, now).empty());
  }
  EXPECT_EQ(probation.deadline(), now) << "it is looked at again soon";
  EXPECT_TRUE(probation.look({{kA, "a", "", ""}}, kProbationTime, now).empty());
  EXPECT_EQ(probation.look({{kA, "a", "", ""}}, kProbationTime, now + Probation::kLookAgain).size(),
            1u);
}

TEST_F(ProbationTest, APauseOfTheMasterRestartsAllTimes) {
  EXPECT_TRUE(run(kProbationTime - milliseconds(100), "a", "").empty());
  probation.restart();
  EXPECT_FALSE(probation.deadline());
  EXPECT_TRUE(run(kProbationTime - milliseconds(100), "a", "").empty());
}

}  // namespace
}  // namespace pccl::master
