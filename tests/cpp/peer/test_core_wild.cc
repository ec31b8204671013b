// Random walks of a PeerCore. wild.h has the possible events and the invariants.

#include "tests/cpp/peer/wild.h"

namespace pccl::peer {
namespace {

TEST(CoreWild, NothingIsLostAndNothingIsReturnedTwice) {
  size_t members = 0;
  std::map<std::string, size_t> counts;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Wild wild{Chance(seed)};
    wild.run(1500);
    members += wild.was_member();
    for (const char* what : {"resume", "epoch", "commit", "abort", "install", "started by its data",
                             "send begun", "probe", "blocked", "withdrawn"})
      counts[what] += wild.count(what);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  // The walks have reached the states that they are meant to reach.
  EXPECT_GT(members, 300u);
  for (const auto& [what, count] : counts) EXPECT_GT(count, 30u) << what;
}

}  // namespace
}  // namespace pccl::peer
