#include "csrc/ring/duplicate_filter.h"

#include <gtest/gtest.h>

namespace pccl::ring {
namespace {

TEST(DuplicateFilter, HoldsIntervalsInAnyOrder) {
  DuplicateFilter known;
  const auto op = [](uint32_t sequence) { return OpKey{TagId{5}, sequence}; };
  EXPECT_FALSE(known.contains(op(0)));
  for (const uint32_t sequence : {0u, 1u, 5u, 3u, 4u, 9u, 5u}) known.add(op(sequence));
  for (uint32_t sequence = 0; sequence < 12; ++sequence) {
    const bool added = sequence <= 1 || (sequence >= 3 && sequence <= 5) || sequence == 9;
    EXPECT_EQ(known.contains(op(sequence)), added) << sequence;
  }
  known.add(op(2));
  EXPECT_TRUE(known.contains(op(2)));
  EXPECT_TRUE(known.contains(op(5)));
  EXPECT_FALSE(known.contains(op(6)));
  EXPECT_FALSE(known.contains({TagId{6}, 2}));
  known.add(op(UINT32_MAX - 1));
  EXPECT_FALSE(known.contains(op(UINT32_MAX - 2)));
  known.clear();
  EXPECT_FALSE(known.contains(op(2)));
}

}  // namespace
}  // namespace pccl::ring
