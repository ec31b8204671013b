#include "csrc/net/network_buckets.h"

#include <gtest/gtest.h>

namespace pccl::net {
namespace {

TEST(NetworkBuckets, ABucketHasItsTokensAndFillsInTime) {
  NetworkBuckets buckets(2, 3);
  Instant now = Instant{} + std::chrono::hours(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(buckets.take("10.0.0.1", now)) << i;
  EXPECT_FALSE(buckets.take("10.0.0.1", now));
  EXPECT_TRUE(buckets.take("10.0.0.2", now)) << "another network";
  now = now + std::chrono::milliseconds(499);
  EXPECT_FALSE(buckets.take("10.0.0.1", now));
  now = now + std::chrono::milliseconds(1);
  EXPECT_TRUE(buckets.take("10.0.0.1", now));
  EXPECT_FALSE(buckets.take("10.0.0.1", now));
}

TEST(NetworkBuckets, ThisMachineHasNone) {
  NetworkBuckets buckets(1, 1);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(buckets.take("127.0.0.1", Instant{}));
  EXPECT_EQ(buckets.size(), 0u);
}

}  // namespace
}  // namespace pccl::net
