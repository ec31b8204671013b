#include "csrc/peer/shell/wait_record.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <vector>

namespace pccl::peer {
namespace {

ThreadWait wait_of(Handle handle) { return {handle, monotonic_now()}; }

TEST(WaitRecord, AThreadThatHasMadeNoCallIsNotThere) {
  const WaitRecord record;
  EXPECT_TRUE(record.look().threads.empty());
  EXPECT_TRUE(record.look().all);
  EXPECT_FALSE(record.look().callbacks);
}

TEST(WaitRecord, HasTheWaitWhileItLasts) {
  WaitRecord record;
  record.calls();
  ASSERT_EQ(record.look().threads.size(), 1u);
  EXPECT_EQ(record.look().threads[0].handle, 0u);
  {
    const ThreadWait expected{7, monotonic_now(), true};
    const WaitRecord::Wait wait(&record, expected);
    const ThreadWait seen = record.look().threads.at(0);
    EXPECT_EQ(seen.handle, 7u);
    EXPECT_EQ(seen.since, expected.since);
    EXPECT_TRUE(seen.bounded);
  }
  ASSERT_EQ(record.look().threads.size(), 1u) << "a thread has one slot";
  EXPECT_EQ(record.look().threads[0].handle, 0u);
}

TEST(WaitRecord, TheEndOfAWaitWithinAWaitContinuesTheOuterOne) {
  WaitRecord record;
  const ThreadWait expected = wait_of(1);
  const WaitRecord::Wait outer(&record, expected);
  {
    const WaitRecord::Wait inner(&record, wait_of(2));
    EXPECT_EQ(record.look().threads.at(0).handle, 2u);
  }
  EXPECT_EQ(record.look().threads.at(0).handle, 1u);
  EXPECT_EQ(record.look().threads.at(0).since, expected.since);
}

TEST(WaitRecord, WithoutARecordAWaitDoesNothing) {
  const WaitRecord::Wait wait(nullptr, wait_of(1));
}

// All threads are there at once, so that none takes over the slot of another one.
TEST(WaitRecord, TooManyThreads) {
  WaitRecord record;
  const auto with = [&record](size_t count) {
    std::barrier all(static_cast<std::ptrdiff_t>(count));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        record.calls();
        all.arrive_and_wait();
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  with(protocol::kBlockedWaitsMax);
  EXPECT_EQ(record.look().threads.size(), protocol::kBlockedWaitsMax);
  EXPECT_TRUE(record.look().all);
  with(protocol::kBlockedWaitsMax + 1);
  EXPECT_EQ(record.look().threads.size(), protocol::kBlockedWaitsMax);
  EXPECT_FALSE(record.look().all);
}

TEST(WaitRecord, AddsUpTheWaitsOfTheFirstThread) {
  WaitRecord record;
  const Instant begin = monotonic_now();
  { const WaitRecord::Wait wait(&record, {kInJointCall, begin}); }
  {
    const WaitRecord::Wait wait(&record, {7, begin});
    const WaitRecord::Wait inner(&record, {8, begin});  // a part of the outer one
  }
  std::thread([&record, begin] { const WaitRecord::Wait wait(&record, {9, begin}); }).join();
  const Duration passed = monotonic_now() - begin;
  record.judged(7, PeerId{2}, monotonic_now());
  record.judged(8, PeerId{2}, monotonic_now());
  const TimeTotals totals = record.totals(monotonic_now(), false);
  EXPECT_GT(totals.joint, Duration{0});
  EXPECT_GT(totals.waiting, Duration{0});
  EXPECT_GT(totals.elsewhere, Duration{0});
  EXPECT_EQ(totals.waiting_for.size(), 1u);
  EXPECT_LE(totals.waiting + totals.transferring, passed) << "the inner wait counts once";
}

TEST(WaitRecord, AWaitThatGoesOnIsInTheTotals) {
  WaitRecord record;
  const Instant begin = monotonic_now();
  const Instant later = begin + std::chrono::seconds(60);
  {
    const WaitRecord::Wait wait(&record, {7, begin});
    EXPECT_EQ(record.totals(later, false).waiting, std::chrono::seconds(60));
    EXPECT_EQ(record.totals(later, true).transferring, std::chrono::seconds(60));
    EXPECT_EQ(record.totals(later, true).waiting, Duration{0});
  }
  EXPECT_EQ(record.totals(later, false).waiting, Duration{0});
  const WaitRecord::Wait wait(&record, {kInJointCall, begin});
  EXPECT_EQ(record.totals(later, false).joint, std::chrono::seconds(60));
}

TEST(WaitRecord, CountsFutures) {
  WaitRecord record;
  record.future_begins();
  record.future_begins();
  record.future_ends();
  EXPECT_TRUE(record.look().callbacks);
  record.future_ends();
  EXPECT_FALSE(record.look().callbacks);
}

}  // namespace
}  // namespace pccl::peer
