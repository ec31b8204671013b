#include "csrc/base/endpoint.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace pccl {
namespace {

TEST(Endpoint, IsWrittenAsUrlsHaveIt) {
  EXPECT_EQ(text(Endpoint{"10.0.0.7", 48201}), "10.0.0.7:48201");
  EXPECT_EQ(text(Endpoint{"a.example", 1}), "a.example:1");
  EXPECT_EQ(text(Endpoint{"fe80::1", 48201}), "[fe80::1]:48201");
}

TEST(Endpoint, KnowsPrivateAddresses) {
  for (const char* host : {"10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.2", "100.64.0.1",
                           "100.127.0.1", "fd00::1", "fc12::1"}) {
    EXPECT_TRUE(is_private(host)) << host;
  }
  for (const char* host : {"11.0.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1", "100.128.0.1",
                           "127.0.0.1", "2001:db8::1", "fe80::1", "a.example", ""}) {
    EXPECT_FALSE(is_private(host)) << host;
  }
}

TEST(Endpoint, KnowsWhichAddressesOneMachineMayOfferToAnother) {
  for (const char* host : {"10.1.2.3", "223.255.255.255", "2001:db8::1", "fd00::1"})
    EXPECT_TRUE(is_unicast(host)) << host;
  for (const char* host :
       {"0.0.0.0", "0.1.2.3", "127.0.0.1", "169.254.1.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
        "255.255.255.255", "::", "::1", "ff02::1", "fe80::1", "fe80::1%eth0", "::ffff:127.0.0.1",
        "::127.0.0.1", "64:ff9b::7f00:1", "a.example", "", "10.1.2.3.4"}) {
    EXPECT_FALSE(is_unicast(host)) << host;
  }
}

// Nothing that a system takes for an address of its own machine may pass as another kind.
TEST(Endpoint, AHostHasOneKindInAllItsForms) {
  const std::vector<std::pair<HostKind, std::vector<std::string>>> all = {
      {HostKind::kLoopback,
       {"127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "0", "::", "::1",
        "::1%lo", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::127.0.0.1", "localhost",
        "LocalHost.", "a.localhost", "ip6-loopback"}},
      {HostKind::kLinkLocal, {"169.254.169.254", "::ffff:169.254.1.1", "fe80::1", "fe80::1%eth0"}},
      {HostKind::kMulticast, {"224.0.0.1", "255.255.255.255", "ff02::1"}},
      {HostKind::kPrivate,
       {"10.1.2.3", "10.1", "172.16.0.1", "192.168.1.2", "100.64.0.1", "fd00::1", "fec0::1",
        "::ffff:10.0.0.7", "64:ff9b::10.0.0.7"}},
      {HostKind::kPublic,
       {"1.2.3.4", "172.32.0.1", "100.128.0.1", "2001:db8::1", "::ffff:1.2.3.4"}},
      {HostKind::kName, {"a.example", "localhost.example", "notlocalhost", "10.0.0.7.example", ""}},
  };
  for (const auto& [kind, hosts] : all) {
    for (const std::string& host : hosts) EXPECT_EQ(host_kind(host), kind) << host;
  }
  EXPECT_STREQ(text(HostKind::kPrivate), "a private address");
}

TEST(Endpoint, TwoFormsOfAnAddressAreOneHost) {
  EXPECT_TRUE(is_same_host("10.0.0.7", "::ffff:10.0.0.7"));
  EXPECT_TRUE(is_same_host("fe80::1", "fe80::1%eth0"));
  EXPECT_TRUE(is_same_host("a.example", "a.example"));
  EXPECT_FALSE(is_same_host("10.0.0.7", "10.0.0.8"));
  EXPECT_FALSE(is_same_host("10.0.0.7", "a.example"));
}

TEST(Endpoint, ANetworkIsAnAddressOrThePrefixOfOne) {
  EXPECT_TRUE(is_same_network("1.2.3.4", "1.2.3.4"));
  EXPECT_FALSE(is_same_network("1.2.3.4", "1.2.3.5"));
  EXPECT_TRUE(is_same_network("2001:db8::1", "2001:db8::2"));
  EXPECT_FALSE(is_same_network("2001:db8::1", "2001:db8:0:1::1"));
  EXPECT_FALSE(is_same_network("a.example", "a.example"));
  EXPECT_FALSE(is_same_network("", ""));
}

}  // namespace
}  // namespace pccl
