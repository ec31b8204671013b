#include "csrc/protocol/silence.h"

#include <gtest/gtest.h>

namespace pccl::protocol {
namespace {

TEST(Silence, IsTooLongAfterSoManyTicks) {
  Silence silence(3);
  silence.tick();
  silence.tick();
  EXPECT_FALSE(silence.too_long());
  silence.tick();
  EXPECT_TRUE(silence.too_long());
}

TEST(Silence, EndsWithWhatIsHeard) {
  Silence silence(3);
  silence.tick();
  silence.tick();
  silence.heard();
  EXPECT_EQ(silence.silent_ticks(), 0);
  silence.tick();
  silence.tick();
  EXPECT_FALSE(silence.too_long());
  EXPECT_EQ(silence.silent_ticks(), 2);
}

// What is heard does not count as said, nor the other way round.
TEST(Silence, AsksForAPingWhenNothingWasSaid) {
  Silence silence(10);
  for (int ping = 0; ping < 3; ++ping) {
    for (int tick = 0; tick < kTicksPerPing; ++tick) {
      EXPECT_FALSE(silence.ping_due());
      silence.heard();
      silence.tick();
    }
    EXPECT_TRUE(silence.ping_due());
    silence.said();
  }
  EXPECT_EQ(silence.silent_ticks(), 1);
}

using Finding = Probe::Finding;

TEST(Probe, IsDeadWithoutItsAnswer) {
  Probe probe(7);
  EXPECT_EQ(probe.look(0), Finding::kUnknown);
  EXPECT_EQ(probe.look(6), Finding::kUnknown) << "an older answer";
  EXPECT_EQ(probe.look(6), Finding::kDead);
}

TEST(Probe, LivesWithItsAnswer) {
  Probe probe(7);
  EXPECT_EQ(probe.look(0), Finding::kUnknown);
  EXPECT_EQ(probe.look(7), Finding::kAlive);
}

}  // namespace
}  // namespace pccl::protocol
