#include "csrc/net/kept_window.h"

#include <gtest/gtest.h>

namespace pccl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Kept : public ::testing::Test {
 protected:
  static constexpr Duration kRoundTrip = milliseconds(20);

  KeptWindow::How send(bool chunk, uint64_t bytes) {
    const KeptWindow::How how = window.sends(now, chunk, sent);
    sent += bytes;
    return how;
  }
  // A chunk whose bytes leave evenly, a hundredth at a time, at this rate.
  void stream(uint64_t bytes_per_second, Duration length) {
    const auto bytes =
        static_cast<uint64_t>(static_cast<double>(bytes_per_second) / 100 * to_seconds(length));
    for (int i = 0; i < 100; ++i) {
      send(true, bytes);
      now = now + length / 100;
    }
  }

  bool restarts = true;
  int asked = 0;
  PathInfo path{.smoothed = kRoundTrip, .least = kRoundTrip, .window = 10'000};
  Instant now = Instant{} + std::chrono::hours(1);
  uint64_t sent = 0;
  KeptWindow window{{.restarts =
                         [this] {
                           ++asked;
                           return restarts;
                         },
                     .path = [this] { return path; }},
                    now};
};

TEST_F(Kept, AfterAnIdlePeriodChunksLeaveLittleFasterThanBeforeForAWhile) {
  stream(10'000'000, seconds(2));
  now = now + seconds(5);
  const KeptWindow::How first = send(true, 1000);
  EXPECT_TRUE(first.keep);
  ASSERT_TRUE(first.pace);
  // The round trip of the last bytes counts as sending time: 99 pauses of 20 ms, and 20 ms.
  EXPECT_NEAR(static_cast<double>(*first.pace), 12.5e6, 1);
  now = now + (KeptWindow::kRoundTripsPaced * kRoundTrip - milliseconds(1));
  EXPECT_FALSE(send(true, 1000).pace) << "the limit stays";
  now = now + milliseconds(1);
  EXPECT_EQ(send(true, 1000).pace, 0u) << "the limit ends";
  EXPECT_FALSE(send(true, 1000).pace) << "it ends once";
}

TEST_F(Kept, APauseThatCostsNoWindowChangesNothing) {
  stream(10'000'000, seconds(2));
  now = now + (KeptWindow::kIdle - milliseconds(21));  // stream() has ended with a pause of 20 ms
  KeptWindow::How how = send(true, 1000);
  EXPECT_FALSE(how.keep || how.pace);
  EXPECT_EQ(asked, 0) << "a pause of less than kIdle costs no question to the system";
  restarts = false;
  now = now + seconds(5);
  how = send(true, 1000);
  EXPECT_FALSE(how.keep || how.pace);
  EXPECT_EQ(asked, 1);
}

// A ping uses little of the window. So the window is kept for the sends after it, too, and only the
// next chunk is paced.
TEST_F(Kept, APingDoesNotEndTheIdlePeriodOfTheChunks) {
  stream(10'000'000, seconds(2));
  now = now + seconds(5);
  KeptWindow::How how = send(false, 50);
  EXPECT_TRUE(how.keep);
  EXPECT_FALSE(how.pace);
  now = now + (KeptWindow::kRoundTripsKept * kRoundTrip - milliseconds(1));
  EXPECT_TRUE(send(false, 50).keep);
  now = now + milliseconds(1);
  EXPECT_FALSE(send(false, 50).keep);
  how = send(true, 1000);
  EXPECT_FALSE(how.keep) << "the ping has kept it";
  ASSERT_TRUE(how.pace);
  EXPECT_GT(*how.pace, 0u);
}

TEST_F(Kept, AChunkUsesTheWindowSoThatNothingHasToKeepIt) {
  now = now + seconds(5);
  EXPECT_TRUE(send(true, 1000).keep);
  EXPECT_FALSE(send(false, 50).keep);
}

TEST_F(Kept, WithoutAKnownRateNothingIsPaced) {
  now = now + seconds(5);
  KeptWindow::How how = send(true, static_cast<uint64_t>(KeptWindow::kInitialWindow) - 1);
  EXPECT_TRUE(how.keep);
  EXPECT_FALSE(how.pace) << "the first chunk";
  now = now + seconds(5);
  how = send(true, 1000);
  EXPECT_TRUE(how.keep);
  EXPECT_FALSE(how.pace) << "too few bytes to know a rate";
}

// A connection that carried small chunks with pauses between them is not limited to that low rate.
TEST_F(Kept, HalfAWindowLeavesInARoundTripAtLeast) {
  path.window = 4'000'000;
  for (int i = 0; i < 10; ++i) {
    send(true, 70'000);
    now = now + milliseconds(140);
  }
  now = now + seconds(5);
  EXPECT_EQ(send(true, 1000).pace, 100'000'000u);  // 2 MB in 20 ms
  path.window = 20'000;
  now = now + seconds(5);
  const KeptWindow::How how = send(true, 1000);
  ASSERT_TRUE(how.pace);
  EXPECT_GE(static_cast<double>(*how.pace), KeptWindow::kInitialWindow / to_seconds(kRoundTrip));
}

// An idle period of less than kIdle between two chunks belongs to the stretch, and a short stretch
// keeps the rate of the one before.
TEST_F(Kept, TheRateIsThatOfTheLatestStretchWithEnoughBytes) {
  path.window = 0;
  stream(10'000'000, seconds(2));
  now = now + seconds(5);
  send(true, 1000);
  now = now + seconds(5);
  const KeptWindow::How how = send(true, 1000);
  ASSERT_TRUE(how.pace);
  EXPECT_NEAR(static_cast<double>(*how.pace), 12.5e6, 1);
}

// The system may restart congestion control while a chunk waits, as in a suspended process.
TEST_F(Kept, ALongPauseWithinAChunkIsAnIdlePeriod) {
  stream(10'000'000, seconds(1));
  now = now + seconds(3);
  const KeptWindow::How how = send(true, 1000);
  EXPECT_TRUE(how.keep);
  EXPECT_TRUE(how.pace);
}

}  // namespace
}  // namespace pccl::net
