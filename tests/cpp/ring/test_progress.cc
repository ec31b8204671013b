// Progress alone. test_schedule.cc runs it with a schedule, in whole worlds.

#include "csrc/ring/progress.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pccl::ring {
namespace {

// Ring index 1 of three; three slices of four rounds. Chunk 4s + q is round q of slice s.
const Schedule kRing(
    {.rank = 1, .world = 3, .element_bytes = 1, .count = 9 * (64 << 10), .block_bytes = {}});

std::vector<uint64_t> take_all(Progress& progress, uint64_t steps) {
  std::vector<uint64_t> taken;
  while (progress.can_send(steps)) taken.push_back(progress.take());
  return taken;
}

void arrive(Progress& progress, uint64_t id) {
  EXPECT_TRUE(progress.expects(id));
  progress.arriving(id);
  EXPECT_FALSE(progress.expects(id));
  progress.arrived(id);
  EXPECT_FALSE(progress.expects(id));
}

using Ids = std::vector<uint64_t>;

TEST(Progress, SendsItsOwnPartWithinItsCredit) {
  Progress progress(kRing);
  EXPECT_EQ(take_all(progress, 0), Ids());
  EXPECT_EQ(take_all(progress, 2), (Ids{0, 4}));
  EXPECT_EQ(take_all(progress, 9), (Ids{8}));
  EXPECT_FALSE(progress.can_send(9));
}

TEST(Progress, InStepItSendsNothingThatIsAheadOfWhatHasCome) {
  Progress progress(kRing);
  progress.go_in_step();
  EXPECT_EQ(take_all(progress, 9), Ids{0}) << "the first needs nothing";
  arrive(progress, 4);
  EXPECT_EQ(take_all(progress, 9), Ids{5}) << "what came is sent on, whatever is missing before";
  arrive(progress, 0);
  EXPECT_EQ(take_all(progress, 9), (Ids{4, 1}));
  arrive(progress, 1);
  EXPECT_EQ(take_all(progress, 1), Ids()) << "credit still counts";
  EXPECT_EQ(take_all(progress, 9), (Ids{8, 2}));
}

TEST(Progress, SequentialRoundsWaitForTheCreditOfAll) {
  const Schedule wan({.rank = 1,
                      .world = 3,
                      .element_bytes = 1,
                      .count = 9 * (64 << 10),
                      .block_bytes = {},
                      .wan = true});
  Progress progress(wan);
  arrive(progress, 0);
  EXPECT_EQ(take_all(progress, 2), (Ids{0, wan.sources().stride})) << "a head start";
  const uint64_t credit = wan.credit({}, {});
  ASSERT_GE(credit, wan.step_count());
  const Ids rest = take_all(progress, credit);
  ASSERT_EQ(rest.size(), wan.chunk_count() / 4 - 1);
  EXPECT_EQ(rest.back(), 1u) << "the second round of what came";
}

TEST(Progress, ArrivingDataIsForwardedInTheOrderOfTheSchedule) {
  Progress progress(kRing);
  for (const uint64_t id : {9, 4, 1, 0, 3}) arrive(progress, id);
  EXPECT_EQ(take_all(progress, 2), (Ids{0, 4, 1})) << "of one step the later slice first";
  EXPECT_EQ(take_all(progress, 9), (Ids{8, 5, 2, 10})) << "the last round goes nowhere";
}

TEST(Progress, ItsCursorsStandAtTheFirstGap) {
  Progress progress(kRing);
  arrive(progress, 0);
  arrive(progress, 1);
  EXPECT_EQ(progress.received_until().step, 1u);
  EXPECT_EQ(progress.received_until().position, 0u);
  arrive(progress, 4);
  EXPECT_EQ(progress.received_until().step, 2u) << "round 1 of the first slice was there before";
  progress.sent(4);
  EXPECT_EQ(progress.sent_until().step, 0u);
  progress.sent(0);
  EXPECT_EQ(progress.sent_until().step, 1u);
  EXPECT_EQ(progress.sent_until().position, 1u);
}

TEST(Progress, IsFinishedWhenAllHasComeAndGone) {
  Progress progress(kRing);
  for (uint64_t id = 0; id < kRing.chunk_count(); ++id) arrive(progress, id);
  EXPECT_FALSE(progress.finished());
  const Ids all = take_all(progress, kRing.step_count());
  EXPECT_EQ(all.size(), kRing.chunk_count());
  for (const uint64_t id : all) {
    EXPECT_FALSE(progress.finished());
    progress.sent(id);
  }
  EXPECT_TRUE(progress.finished());
  EXPECT_TRUE(Progress(Schedule({.world = 1, .count = 5, .block_bytes = {}})).finished());
}

TEST(Progress, ABroadcastIsSentOnAndEndsWithTheLast) {
  Shape shape{.pattern = Pattern::kBroadcast, .world = 3, .count = 200000, .block_bytes = {}};
  const Schedule root(shape);
  shape.rank = 1;
  const Schedule middle(shape);
  shape.rank = 2;
  const Schedule last(shape);
  ASSERT_GE(root.chunk_count(), 3u);
  Progress sends(root), passes(middle), ends(last);
  EXPECT_EQ(take_all(sends, 2), (Ids{0, 1}));
  EXPECT_FALSE(passes.can_send(9));
  arrive(passes, 1);
  EXPECT_EQ(take_all(passes, 9), (Ids{1}));
  for (uint64_t id = 0; id < last.chunk_count(); ++id) arrive(ends, id);
  EXPECT_FALSE(ends.can_send(9));
  EXPECT_TRUE(ends.finished());
}

}  // namespace
}  // namespace pccl::ring
