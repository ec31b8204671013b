#include "csrc/base/endpoint.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace pccl
