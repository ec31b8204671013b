#include "csrc/protocol/keepalive_timer.h"

#include <gtest/gtest.h>

namespace pccl::protocol {
namespace {

TEST(KeepaliveTimer, IsTooLongAfterSoManyTicks) {
  KeepaliveTimer silence(3);
  silence.beat();
  silence.beat();
  EXPECT_FALSE(silence.too_long());
  silence.beat();
  EXPECT_TRUE(silence.too_long());
}

TEST(KeepaliveTimer, EndsWithWhatIsHeard) {
  KeepaliveTimer silence(3);
  silence.beat();
  silence.beat();
  silence.received();
  EXPECT_EQ(silence.silent_ticks(), 0);
  silence.beat();
  silence.beat();
  EXPECT_FALSE(silence.too_long());
  EXPECT_EQ(silence.silent_ticks(), 2);
}

// Received traffic does not count as sent, and sent traffic does not count as received.
TEST(KeepaliveTimer, AsksForAPingWhenNothingWasSaid) {
  KeepaliveTimer silence(10);
  for (int ping = 0; ping < 3; ++ping) {
    for (int tick = 0; tick < kTicksPerPing; ++tick) {
      EXPECT_FALSE(silence.ping_due());
      silence.received();
      silence.beat();
    }
    EXPECT_TRUE(silence.ping_due());
    silence.sent();
  }
  EXPECT_EQ(silence.silent_ticks(), 1);
}

// Firewalls forget idle connections after a while, whatever the peer timeout is.
TEST(KeepaliveTimer, PingsBeforeAFirewallForgets) {
  const Duration all[] = {
      kPeerTimeoutMin,           std::chrono::seconds(2),  kPeerTimeoutDefault,
      std::chrono::seconds(60),  std::chrono::seconds(75), std::chrono::seconds(100),
      std::chrono::seconds(101), std::chrono::minutes(10), kPeerTimeoutMax};
  for (const Duration peer_timeout : all) {
    const Duration beat = beat_of(peer_timeout);
    KeepaliveTimer silence(kTicksPerLinkTimeout, peer_timeout);
    int beats = 0;
    while (!silence.ping_due()) silence.beat(), ++beats;
    EXPECT_GE(beats, 1);
    EXPECT_LE(beats, kTicksPerPing * beats_per_tick(peer_timeout));
    EXPECT_LE((beats + 1) * beat, kPingIntervalMax) << to_seconds(peer_timeout);
    while (!silence.too_long()) silence.beat(), ++beats;
    const Duration off = beats * beat - peer_timeout / 2;
    EXPECT_LT(std::max(off, -off), std::chrono::milliseconds(1)) << to_seconds(peer_timeout);
  }
  EXPECT_EQ(beats_per_ping(kPeerTimeoutDefault), kTicksPerPing);
  EXPECT_EQ(beats_per_ping(std::chrono::seconds(60)), kTicksPerPing);
  EXPECT_EQ(beats_per_tick(std::chrono::seconds(100)), 1);
  EXPECT_EQ(beats_per_tick(std::chrono::seconds(101)), 2);
}

using Finding = LivenessCheck::Finding;

TEST(LivenessCheck, IsDeadWithoutItsAnswer) {
  LivenessCheck probe(7);
  EXPECT_EQ(probe.look(0), Finding::kUnknown);
  EXPECT_EQ(probe.look(6), Finding::kUnknown) << "an older answer";
  EXPECT_EQ(probe.look(6), Finding::kDead);
}

TEST(LivenessCheck, LivesWithItsAnswer) {
  LivenessCheck probe(7);
  EXPECT_EQ(probe.look(0), Finding::kUnknown);
  EXPECT_EQ(probe.look(7), Finding::kAlive);
}

}  // namespace
}  // namespace pccl::protocol
