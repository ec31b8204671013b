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

}  // namespace
}  // namespace pccl::ring
