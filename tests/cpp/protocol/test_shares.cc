#include "csrc/protocol/shares.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "csrc/protocol/limits.h"

namespace pccl::protocol {
namespace {

TEST(Shares, EqualOnesDifferByOneAtMost) {
  for (size_t members = 1; members <= kMembersMax; ++members) {
    const std::vector<uint16_t> shares = equal_shares(members);
    EXPECT_TRUE(are_shares(shares, members));
    EXPECT_TRUE(std::is_sorted(shares.rbegin(), shares.rend()));
    EXPECT_LE(shares.front() - shares.back(), 1);
  }
}

TEST(Shares, OthersThanTheseAreRefused) {
  EXPECT_TRUE(are_shares({256, 0, 0}, 3));
  EXPECT_FALSE(are_shares({128, 128}, 3)) << "one per member";
  EXPECT_FALSE(are_shares({}, 0));
  EXPECT_FALSE(are_shares({128, 127}, 2));
  EXPECT_FALSE(are_shares({128, 129}, 2));
  EXPECT_FALSE(are_shares({65535, 65535, 258}, 3)) << "the sum is not that of 16 bits";
}

}  // namespace
}  // namespace pccl::protocol
