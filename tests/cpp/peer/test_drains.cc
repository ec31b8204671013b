#include "csrc/peer/drains.h"

#include "tests/cpp/peer/transcript.h"

namespace pccl::peer {
namespace {

struct DrainsTest : testing::Test {
  using Drained = Drains::Drained;
  DrainsTest() { context.effects = &effects; }
  std::vector<Handle> finished() {
    std::vector<Handle> handles;
    for (const Effect& effect : effects) handles.push_back(std::get<FinishOp>(effect).handle);
    return handles;
  }
  Context context;
  Effects effects;
  Drains drains{context};
  const OpKey key{tag_id("t"), 0};
  const Status lost{Code::kPeerLost, "lost", {}};
};

TEST_F(DrainsTest, MemoryReturnsWithItsOutcomeOnceTheRingHoldsItNoLonger) {
  drains.finish(epoch_id(1), key, 5, lost);
  EXPECT_EQ(drains.drained(epoch_id(2), key), Drained::kUnknown);
  EXPECT_TRUE(effects.empty() && drains.contains(epoch_id(1), key));
  EXPECT_EQ(drains.drained(epoch_id(1), key), Drained::kFinished);
  EXPECT_EQ(finished(), std::vector<Handle>{5});
  EXPECT_EQ(std::get<FinishOp>(effects[0]).status.code, Code::kPeerLost);
  EXPECT_TRUE(drains.all().empty());
}

TEST_F(DrainsTest, ARestartFinishesNothing) {
  drains.restart(epoch_id(1), key, 5);
  EXPECT_EQ(drains.drained(epoch_id(1), key), Drained::kAgain);
  EXPECT_TRUE(effects.empty() && drains.all().empty());
}

TEST_F(DrainsTest, ARestartThatIsAbortedWaitsForItsKeptPartToo) {
  drains.restart(epoch_id(1), key, 5);
  drains.abort(epoch_id(1), key, lost, 1);
  EXPECT_EQ(drains.drained(epoch_id(1), key), Drained::kWaits);
  EXPECT_TRUE(effects.empty());
  EXPECT_EQ(drains.drained(epoch_id(1), key), Drained::kFinished);
  EXPECT_EQ(finished(), std::vector<Handle>{5});
}

}  // namespace
}  // namespace pccl::peer
