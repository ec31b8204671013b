// Random walks of a MasterCore. wild.h has the possible events and the invariants.

#include "tests/cpp/master/wild.h"

namespace pccl::master {
namespace {

TEST(CoreWild, NothingIsSaidTwiceOrDifferentlyOrTooEarly) {
  std::map<std::string, size_t> counts;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Wild wild{Chance(seed)};
    wild.run(3000);
    for (const char* what : {"EpochStart", "FreezeRequest", "EpochEnd", "SyncPlan", "Kicked",
                             "Notice", "resume", "commit", "abort", "answer ok", "answer peer lost",
                             "reconfiguration", "Farewell", "late", "Probe", "plan"}) {
      counts[what] += wild.count(what);
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  // The walks have reached the states that they are meant to reach.
  for (const auto& [what, count] : counts) EXPECT_GT(count, 15u) << what;
}

TEST(CoreWild, LiarsInventWhatTheyLike) {
  size_t begun = 0, failed = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Wild wild(Chance(seed), true);
    wild.run(1500);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    begun += wild.count("regroup");
    failed += wild.count("regroup that fails");
  }
  EXPECT_GT(begun, 15u);
  EXPECT_GT(failed, 15u);
}

}  // namespace
}  // namespace pccl::master
