#include "csrc/base/contention_detector.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace pccl {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(ContentionDetector, AThreadThatRunsAllTheTimeHasItsCore) {
  ContentionDetector share;
  const Instant start = monotonic_now();
  EXPECT_FALSE(share.waited(start, milliseconds(50)));
  EXPECT_FALSE(share.waited(start + milliseconds(2), milliseconds(52)));
  EXPECT_FALSE(share.waited(start + milliseconds(3), microseconds(52'750)));
}

TEST(ContentionDetector, OneThatWaitedForLongSharesIt) {
  ContentionDetector share;
  const Instant start = monotonic_now();
  EXPECT_FALSE(share.waited(start, milliseconds(50)));
  EXPECT_TRUE(share.waited(start + milliseconds(2), milliseconds(51)));
  // The thread has had its core since the last call.
  EXPECT_FALSE(share.waited(start + milliseconds(4), milliseconds(53)));
}

TEST(ContentionDetector, OneThatSleptBetweenTwoLooksTellsNothing) {
  ContentionDetector share;
  const Instant start = monotonic_now();
  EXPECT_FALSE(share.waited(start, milliseconds(50)));
  EXPECT_FALSE(share.waited(start + milliseconds(11), milliseconds(51)));
}

TEST(ContentionDetector, TheTimeOfAThreadGrowsWhileItRuns) {
  const Duration before = thread_ran();
  while (thread_ran() == before) {
  }
  EXPECT_GT(thread_ran(), before);
}

TEST(ContentionDetector, ALeftCoreMayBeUsedAgain) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  migrate();
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(ContentionDetector, AThreadThatMayUseOneCoreStays) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  migrate();
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&one, &after));
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace pccl
