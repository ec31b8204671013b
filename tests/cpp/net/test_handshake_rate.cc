#include "csrc/net/handshake_rate.h"

#include <gtest/gtest.h>

#include <vector>

namespace pccl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Rate : public ::testing::Test {
 protected:
  // The number of connections that may begin, of so many that come now.
  int taken(const std::string& host, int count) {
    int begun = 0;
    for (int i = 0; i < count; ++i) begun += rate.take(host, now);
    return begun;
  }

  std::vector<std::string> warnings;
  HandshakeRate rate{[this](const std::string& text) { warnings.push_back(text); }};
  Instant now = Instant{} + std::chrono::hours(1);
};

TEST_F(Rate, AllowsABurstAndThenSoManyASecond) {
  EXPECT_EQ(taken("10.0.0.1", 1000), HandshakeRate::kBurst);
  now = now + milliseconds(4);
  EXPECT_EQ(taken("10.0.0.1", 1000), 0);
  now = now + milliseconds(1);
  EXPECT_EQ(taken("10.0.0.1", 1000), 1);
  for (int i = 0; i < 3; ++i) {
    now = now + seconds(1);
    EXPECT_EQ(taken("10.0.0.1", 1000), HandshakeRate::kPerSecond);
  }
  now = now + seconds(3600);
  EXPECT_EQ(taken("10.0.0.1", 1000), HandshakeRate::kBurst) << "time does not add up for ever";
}

TEST_F(Rate, LimitsNoneWhoIsSlower) {
  for (int i = 0; i < 10 * HandshakeRate::kBurst; ++i) {
    EXPECT_EQ(taken("10.0.0.1", 1), 1);
    now = now + milliseconds(5);
  }
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

TEST_F(Rate, IsThatOfEachNetwork) {
  EXPECT_EQ(taken("10.0.0.1", 1000), HandshakeRate::kBurst);
  EXPECT_EQ(taken("10.0.0.2", 1), 1);
  EXPECT_EQ(taken("2001:db8:0:1::1", 300), 300);
  EXPECT_EQ(taken("2001:db8:0:1:ffff::2", 300), HandshakeRate::kBurst - 300);
  EXPECT_EQ(taken("2001:db8:0:2::1", 1), 1);
}

TEST_F(Rate, DoesNotLimitThisMachine) {
  for (const char* host : {"127.0.0.1", "127.0.0.9", "::1"}) EXPECT_EQ(taken(host, 5000), 5000);
  EXPECT_EQ(rate.size(), 0u);
}

TEST_F(Rate, WarnsOnceInAWhile) {
  taken("10.0.0.1", HandshakeRate::kBurst + 3);
  taken("2001:db8::1", HandshakeRate::kBurst + 1);
  EXPECT_EQ(warnings,
            (std::vector<std::string>{
                "closed 1 connection from 10.0.0.1 at once: more than 200 a second come from there",
                "closed 1 connection from 2001:db8::/64 at once: more than 200 a second come from "
                "there"}));
  now = now + NetworkWarnings::kInterval;
  taken("10.0.0.1", HandshakeRate::kBurst + 1);
  EXPECT_EQ(warnings.back(),
            "closed 3 connections from 10.0.0.1 at once: more than 200 a second come from there");
}

TEST_F(Rate, RemembersFewNetworks) {
  for (size_t i = 0; i < NetworkBuckets::kNetworksMax + 10; ++i)
    EXPECT_EQ(taken("10.0." + std::to_string(i), 1), 1);
  EXPECT_EQ(rate.size(), NetworkBuckets::kNetworksMax);
  EXPECT_EQ(taken("10.9.9.9", 1000), 1000) << "there is no room for its bucket";
  now = now + milliseconds(5);
  EXPECT_EQ(taken("10.9.9.9", 1000), HandshakeRate::kBurst) << "the others are full again";
  EXPECT_EQ(rate.size(), 1u);
}

}  // namespace
}  // namespace pccl::net
