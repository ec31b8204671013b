#include "master/runs/journal_compaction.h"

#include <gtest/gtest.h>

namespace pccl::master::journal {
namespace {

TEST(JournalCompaction, ASmallFileStaysAsItIs) {
  EXPECT_FALSE(needs_compaction(0, 0));
  EXPECT_FALSE(needs_compaction(kCompactionBytesMin, 100));
  EXPECT_TRUE(needs_compaction(kCompactionBytesMin + 1, 100));
}

TEST(JournalCompaction, ALargeFileHasToGrowFourfold) {
  constexpr size_t kLarge = 3 * kCompactionBytesMin;
  EXPECT_FALSE(needs_compaction(kLarge, kLarge));
  EXPECT_FALSE(needs_compaction(4 * kLarge, kLarge));
  EXPECT_TRUE(needs_compaction(4 * kLarge + 1, kLarge));
}

}  // namespace
}  // namespace pccl::master::journal
