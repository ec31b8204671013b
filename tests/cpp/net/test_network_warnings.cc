#include "csrc/net/network_warnings.h"

#include <gtest/gtest.h>

namespace pccl::net {
namespace {

const Instant kStart = Instant{} + std::chrono::hours(1);
constexpr Duration kMoment = std::chrono::milliseconds(1);

TEST(NetworkWarnings, ComeAtOnceAndThenOncePerInterval) {
  NetworkWarnings warnings;
  Instant now = kStart;
  EXPECT_EQ(warnings.count("10.0.0.1", now), 1u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(warnings.count("10.0.0.1", now = now + kMoment), 0u);
  now = kStart + (NetworkWarnings::kInterval - kMoment);
  EXPECT_EQ(warnings.count("10.0.0.1", now), 0u);
  EXPECT_EQ(warnings.count("10.0.0.1", now = now + kMoment), 7u);
  EXPECT_EQ(warnings.count("10.0.0.1", now), 0u);
  EXPECT_EQ(warnings.count("10.0.0.1", now + NetworkWarnings::kInterval), 2u);
}

TEST(NetworkWarnings, CountEachNetwork) {
  NetworkWarnings warnings;
  EXPECT_EQ(warnings.count("10.0.0.1", kStart), 1u);
  EXPECT_EQ(warnings.count("10.0.0.2", kStart), 1u);
  EXPECT_EQ(warnings.count("10.0.0.2", kStart + NetworkWarnings::kInterval), 1u);
}

TEST(NetworkWarnings, AreOfFewNetworksAtATime) {
  NetworkWarnings warnings;
  for (size_t i = 0; i < NetworkWarnings::kNetworksMax; ++i)
    EXPECT_EQ(warnings.count(std::to_string(i), kStart), 1u);
  EXPECT_EQ(warnings.count("another", kStart + kMoment), 0u);
  EXPECT_EQ(warnings.count("0", kStart + kMoment), 0u);
  EXPECT_EQ(warnings.count("another", kStart + NetworkWarnings::kInterval), 1u);
}

}  // namespace
}  // namespace pccl::net
