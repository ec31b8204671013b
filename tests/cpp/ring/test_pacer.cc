#include "csrc/ring/pacer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pccl::ring {
namespace {

constexpr uint64_t kBottleneck = 180'000'000;  // bytes per second

// A path with a queue of its own: what is sent beyond its capacity stands in it.
struct Bottleneck {
  uint64_t capacity = kBottleneck;
  double queue = 0;  // in windows of its capacity

  void window(Pacer& pacer) {
    const uint64_t wanted = pacer.limit() == 0 ? 2 * capacity : pacer.limit();
    queue += static_cast<double>(wanted) / static_cast<double>(capacity) - 1;
    queue = std::clamp(queue, 0.0, 0.5);
    const uint64_t carried = queue > 0 ? capacity : std::min(wanted, capacity);
    pacer.window(carried, queue > 0.05);
  }
};

TEST(Pacer, LeavesAPathAloneWhereNothingQueues) {
  Pacer pacer;
  for (int window = 0; window < 100; ++window) pacer.window(kBottleneck, false);
  EXPECT_EQ(pacer.limit(), 0u);
}

TEST(Pacer, FindsWhatThePathCarriesAndStaysThere) {
  Pacer pacer;
  Bottleneck path;
  for (int window = 0; window < 10; ++window) path.window(pacer);
  uint64_t limits = 0;
  int standing = 0;
  for (int window = 0; window < 200; ++window) {
    path.window(pacer);
    EXPECT_GT(pacer.limit(), kBottleneck * 88 / 100);
    EXPECT_LT(pacer.limit(), kBottleneck * 112 / 100);
    limits += pacer.limit();
    standing += path.queue > 0.1 ? 1 : 0;
  }
  EXPECT_GT(limits / 200, kBottleneck * 95 / 100);
  EXPECT_LT(standing, 40);
}

TEST(Pacer, FollowsAPathThatBecomesWiderAndNarrower) {
  Pacer pacer;
  Bottleneck path;
  for (int window = 0; window < 20; ++window) path.window(pacer);
  path.capacity *= 3;
  for (int window = 0; window < 60; ++window) path.window(pacer);
  EXPECT_GT(pacer.limit(), 3 * kBottleneck * 88 / 100);
  path.capacity /= 6;
  for (int window = 0; window < 20; ++window) path.window(pacer);
  EXPECT_LT(pacer.limit(), kBottleneck / 2 * 112 / 100);
}

// Others fill the queue whatever we do.
TEST(Pacer, YieldsToOthersOnlySoFar) {
  Pacer pacer;
  int free = 0;
  for (int window = 0; window < 200; ++window) {
    const uint64_t limit = pacer.limit();
    free += limit == 0 ? 1 : 0;
    EXPECT_TRUE(limit == 0 || limit > kBottleneck * 70 / 100) << limit;
    pacer.window(limit == 0 ? kBottleneck : std::min(limit, kBottleneck), true);
  }
  EXPECT_GT(free, 100);
}

// The others of a ring go slower and slower, each because the next does.
TEST(Pacer, DoesNotFollowTheOthersDown) {
  Pacer pacer;
  uint64_t rate = kBottleneck;
  for (int window = 0; window < 40; ++window) {
    pacer.window(rate, window % 3 != 0);
    rate = pacer.limit() == 0 ? rate : std::min(rate, pacer.limit()) * 97 / 100;
  }
  EXPECT_TRUE(pacer.limit() == 0 || pacer.limit() > kBottleneck / 2) << pacer.limit();
}

TEST(Pacer, ALimitThatBindsNothingDoesNotGrow) {
  Pacer pacer;
  pacer.window(kBottleneck, true);
  for (int window = 0; window < 100; ++window) pacer.window(kBottleneck / 4, false);
  EXPECT_LE(pacer.limit(), kBottleneck);
}

}  // namespace
}  // namespace pccl::ring
