#include "master/topology/size_average.h"

#include <gtest/gtest.h>

namespace pccl::master::topology {
namespace {

TEST(SizeAverage, IsAGuessUntilOneIsKnown) {
  SizeAverage sizes;
  EXPECT_EQ(sizes.bytes(), SizeAverage::kGuess);
  sizes.note(1000);
  EXPECT_EQ(sizes.bytes(), 1000);
}

TEST(SizeAverage, CountsBytesAndNotOperations) {
  SizeAverage sizes;
  sizes.note(90e6);
  for (int small = 0; small < 10; ++small) sizes.note(1e6);
  EXPECT_GT(sizes.bytes(), 75e6);
}

TEST(SizeAverage, ForgetsWhatWasLongAgo) {
  SizeAverage sizes;
  sizes.note(100e6);
  for (int later = 0; later < 1000; ++later) sizes.note(1e6);
  EXPECT_LT(sizes.bytes(), 1.1e6);
}

}  // namespace
}  // namespace pccl::master::topology
