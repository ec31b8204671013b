// announce: each report comes once. The tests of RingCore check when it comes.
#include "csrc/ring/announce.h"

#include <gtest/gtest.h>

namespace pccl::ring {
namespace {

Task task(Pattern pattern, uint64_t count) {
  return {.epoch = Epoch{5},
          .op = {},
          .shape = {.pattern = pattern,
                    .rank = 0,
                    .world = 2,
                    .element_bytes = 4,
                    .count = count,
                    .block_bytes = {}},
          .upstream = PeerId{2},
          .downstream = PeerId{2}};
}

TEST(Announce, AnEmptyOperationIsTransferredOnce) {
  Operation operation(task(Pattern::kAllReduce, 0), 1);
  Effects effects;
  announce_if_transferred(operation, effects);
  announce_if_transferred(operation, effects);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<OpTransferred>(effects[0]));
}

TEST(Announce, AnOperationWithChunksToMoveIsNotTransferred) {
  Operation operation(task(Pattern::kAllReduce, 1000), 1);
  Effects effects;
  announce_if_transferred(operation, effects);
  EXPECT_TRUE(effects.empty());
}

TEST(Announce, ProgressIsOnlyForOperationsThatKeepElements) {
  Task kept = task(Pattern::kAllReduce, 0);
  kept.keep = true;
  Operation without(task(Pattern::kAllReduce, 0), 1), with(kept, 2);
  Effects effects;
  announce_progress(without, effects);
  announce_progress(with, effects);
  EXPECT_TRUE(effects.empty()) << "no element is final yet";
}

TEST(Announce, ContributionsAreCombinedOnceAllAreHere) {
  Task one_shot = task(Pattern::kOneShot, 10);
  one_shot.parts = {{.peer = PeerId{1}, .to = 40, .from = 40},
                    {.peer = PeerId{2}, .to = 40, .from = 40}};
  Operation operation(one_shot, 1);
  Effects effects;
  combine_if_here(operation, effects);
  EXPECT_TRUE(effects.empty());
  operation.one_shot.coming(1);
  operation.one_shot.arrived();
  combine_if_here(operation, effects);
  combine_if_here(operation, effects);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<Combine>(effects[0]));
}

}  // namespace
}  // namespace pccl::ring
