#include "csrc/peer/state/drift_watch.h"

#include <gtest/gtest.h>

#include "csrc/peer/context.h"
#include "csrc/protocol/state.h"

namespace pccl::peer {
namespace {

using Names = std::vector<std::string>;

protocol::StateEntries weights(uint64_t weight, uint64_t progress = 0) {
  return {{"progress", DType::kInt64, {4}, progress}, {"w", DType::kFloat32, {2, 2}, weight}};
}

class DriftWatchTest : public testing::Test {
 protected:
  DriftWatchTest() { context.effects = &effects; }
  // The group agrees on a state with the entries `elected`.
  FinishJoint sync(uint64_t revision, const protocol::StateEntries& own,
                   const protocol::StateEntries& elected,
                   protocol::SyncStrategy strategy = protocol::SyncStrategy::kEnforcePopular) {
    FinishJoint result;
    const bool lacks = !protocol::lacking(own, elected).empty();
    watch.synced({revision, strategy, own}, own, revision,
                 lacks ? elected : protocol::StateEntries{}, result);
    return result;
  }
  size_t warnings() {
    const size_t count = effects.size();
    for (const Effect& effect : std::exchange(effects, {})) {
      const Log& log = std::get<Log>(effect);
      EXPECT_EQ(log.level, LogLevel::kWarning);
      EXPECT_TRUE(log.text.starts_with("this process drifts: ")) << log.text;
    }
    return count;
  }
  Context context;
  Effects effects;
  DriftWatch watch{context};
};

TEST_F(DriftWatchTest, TheFirstCallOfAPeerCorrectsItButIsNoDrift) {
  const FinishJoint result = sync(3, weights(2), weights(1));
  EXPECT_EQ(result.corrected, Names{"w"});
  EXPECT_FALSE(result.drifted);
  EXPECT_EQ(warnings(), 0u);
}

TEST_F(DriftWatchTest, OtherBitsAtTheNextRevisionAreDrift) {
  sync(3, weights(1), weights(1));
  const FinishJoint result = sync(4, weights(2, 8), weights(1, 9));
  EXPECT_TRUE(result.drifted);
  EXPECT_EQ(result.corrected, (Names{"progress", "w"}));
  EXPECT_EQ(warnings(), 1u);
}

TEST_F(DriftWatchTest, OnlyTheCountersOfATrainerAreNoDrift) {
  sync(3, weights(1), weights(1));
  const FinishJoint result = sync(4, weights(1, 8), weights(1, 9));
  EXPECT_EQ(result.corrected, Names{"progress"});
  EXPECT_FALSE(result.drifted);
}

TEST_F(DriftWatchTest, AnotherStrategyIsNoDrift) {
  sync(3, weights(1), weights(1));
  EXPECT_FALSE(sync(4, weights(2), weights(1), protocol::SyncStrategy::kReceiveOnly).drifted);
  EXPECT_EQ(warnings(), 0u);
}

TEST_F(DriftWatchTest, ItAnnouncesAFewOfManyCorrections) {
  sync(0, weights(1), weights(1));
  for (uint64_t revision = 1; revision <= 20; ++revision)
    EXPECT_TRUE(sync(revision, weights(2), weights(1)).drifted);
  EXPECT_EQ(warnings(), 5u) << "at 1, 2, 4, 8 and 16";
}

TEST_F(DriftWatchTest, EntriesThatAPeerLacksAreNoCorrection) {
  EXPECT_EQ(sync(3, {}, weights(1), protocol::SyncStrategy::kReceiveOnly).corrected, Names{});
}

}  // namespace
}  // namespace pccl::peer
