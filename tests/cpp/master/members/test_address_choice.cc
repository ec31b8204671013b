#include "master/members/address_choice.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

// The addresses that a dialler at `dialler_seen` gets, the first one first. "" is the host of the
// master.
std::vector<std::string> dialled(const std::string& dialler_seen, const Location& target) {
  const Location dialler{dialler_seen, dialler_seen.starts_with("127."), "", 1};
  const AddressChoice choice = choose_addresses(dialler, target);
  std::vector<std::string> hosts = {choice.first.host};
  for (const Endpoint& other : choice.others) hosts.push_back(other.host);
  return hosts;
}

Location seen_at(const std::string& host, const std::string& registered = "",
                 std::vector<std::string> others = {}) {
  Location peer{host, host.starts_with("127."), registered, 40001};
  for (const std::string& other : others) peer.others.push_back({other, 48201});
  return peer;
}

Disclosure disclosure(const std::string& dialler_seen, const Location& target) {
  return choose_addresses({dialler_seen, false, "", 1}, target).disclosure;
}

using Hosts = std::vector<std::string>;

TEST(AddressChoice, PrivateAddressesStayWithinOnePrivateNetwork) {
  const Location target = seen_at("10.0.0.7", "", {"192.168.7.7", "100.64.0.7", "2001:db8::7"});
  const Hosts all = {"10.0.0.7", "192.168.7.7", "100.64.0.7", "2001:db8::7"};
  for (const char* near : {"10.9.9.9", "192.168.1.1", "100.64.0.9", "fd00::9", "127.0.0.1"})
    EXPECT_EQ(dialled(near, target), all) << near;
  EXPECT_EQ(dialled("5.6.7.8", target), (Hosts{"", "2001:db8::7"}))
      << "the peer is in the network of the master";
}

TEST(AddressChoice, PrivateAddressesArePassedOnBehindOneRouter) {
  const Location target = seen_at("1.2.3.4", "", {"192.168.1.2", "2001:db8::7"});
  EXPECT_EQ(dialled("1.2.3.4", target), (Hosts{"1.2.3.4", "192.168.1.2", "2001:db8::7"}));
  for (const char* elsewhere : {"1.2.3.5", "10.0.0.1", "127.0.0.1", "2001:db8::1"})
    EXPECT_EQ(dialled(elsewhere, target), (Hosts{"1.2.3.4", "2001:db8::7"})) << elsewhere;
  const Location at_v6 = seen_at("2001:db8:0:1::7", "", {"192.168.1.2"});
  EXPECT_EQ(dialled("2001:db8:0:1::8", at_v6), (Hosts{"2001:db8:0:1::7", "192.168.1.2"}));
  EXPECT_EQ(dialled("2001:db8:0:2::8", at_v6), (Hosts{"2001:db8:0:1::7"}));
}

// An overlay such as a VPN.
TEST(AddressChoice, TheMastersOwnNetworkMayBeAnOverlay) {
  const Location target = seen_at("100.64.0.7");
  EXPECT_EQ(dialled("100.64.0.8", target), (Hosts{"100.64.0.7"}));
  EXPECT_EQ(dialled("5.6.7.8", target), (Hosts{""}));
}

TEST(AddressChoice, AnAdvertisedAddressIsTheFirst) {
  EXPECT_EQ(dialled("5.6.7.8", seen_at("1.2.3.4", "a.example")), (Hosts{"a.example"}));
  EXPECT_EQ(dialled("5.6.7.8", seen_at("1.2.3.4", "1.2.3.9")), (Hosts{"1.2.3.9"}));
  EXPECT_EQ(dialled("10.0.0.9", seen_at("10.0.0.7", "192.168.7.7")), (Hosts{"192.168.7.7"}));
}

TEST(AddressChoice, AnAdvertisedPrivateAddressOfAnotherNetworkIsNotDialled) {
  const Location target = seen_at("1.2.3.4", "10.0.0.7", {"2001:db8::7"});
  EXPECT_EQ(dialled("1.2.3.4", target), (Hosts{"10.0.0.7", "2001:db8::7"}));
  EXPECT_EQ(dialled("5.6.7.8", target), (Hosts{"1.2.3.4", "2001:db8::7"}));
  const AddressChoice choice = choose_addresses(seen_at("5.6.7.8"), target);
  EXPECT_EQ(choice.first, (Endpoint{"1.2.3.4", 40001}));
  EXPECT_EQ(choice.left_out,
            "advertises 10.0.0.7, a private address, and the master sees it at 1.2.3.4; it was "
            "dialled at 1.2.3.4 instead, because the master does not see both in one network");
  EXPECT_EQ(choose_addresses(seen_at("1.2.3.4"), target).left_out, "");
  EXPECT_EQ(choose_addresses(seen_at("5.6.7.8"), seen_at("1.2.3.4")).left_out, "");
}

TEST(AddressChoice, AFormOfAnAddressHidesNothing) {
  for (const char* host : {"::ffff:10.0.0.7", "10.7", "167772167", "64:ff9b::10.0.0.7"})
    EXPECT_EQ(dialled("5.6.7.8", seen_at("1.2.3.4", host)), (Hosts{"1.2.3.4"})) << host;
}

TEST(AddressChoice, LoopbackIsForPeersOnTheMachineOfTheMaster) {
  const Location target = seen_at("127.0.0.1", "::1", {"10.0.0.7"});
  EXPECT_EQ(dialled("127.0.0.1", target), (Hosts{"::1", "10.0.0.7"}));
  EXPECT_EQ(dialled("10.0.0.9", target), (Hosts{"", "10.0.0.7"}));
  EXPECT_EQ(dialled("5.6.7.8", target), (Hosts{""}));
  EXPECT_EQ(dialled("10.0.0.9", seen_at("127.0.0.1")), (Hosts{""}));
  // An older journal may have such an address of another machine.
  EXPECT_EQ(dialled("10.0.0.9", seen_at("10.0.0.7", "127.0.0.1")), (Hosts{"10.0.0.7"}));
}

TEST(AddressChoice, ALinkLocalAddressIsDialledOnlyIfTheMasterSeesIt) {
  EXPECT_EQ(dialled("fe80::9", seen_at("fe80::7%eth0")), (Hosts{"fe80::7%eth0"}));
  EXPECT_EQ(dialled("fe80::9", seen_at("fe80::7%eth0", "fe80::1")), (Hosts{"fe80::7%eth0"}));
}

TEST(AddressChoice, OneAddressIsDialledOnce) {
  Location target = seen_at("10.0.0.7");
  target.others = {{"10.0.0.7", 40001}, {"10.0.0.7", 48201}};
  EXPECT_EQ(choose_addresses(seen_at("10.0.0.9"), target).others,
            (std::vector<Endpoint>{{"10.0.0.7", 48201}}));
}

TEST(AddressChoice, FailuresAreDisclosedWhereTheMasterSeesThePeer) {
  EXPECT_EQ(disclosure("5.6.7.8", seen_at("1.2.3.4")), Disclosure::kFull);
  EXPECT_EQ(disclosure("5.6.7.8", seen_at("1.2.3.4", "1.2.3.4")), Disclosure::kFull);
  EXPECT_EQ(disclosure("5.6.7.8", seen_at("1.2.3.4", "10.0.0.7")), Disclosure::kFull)
      << "it was not dialled there";
  EXPECT_EQ(disclosure("5.6.7.8", seen_at("10.0.0.7")), Disclosure::kFull) << "via the master";
  EXPECT_EQ(disclosure("5.6.7.8", seen_at("1.2.3.4", "", {"2001:db8::7"})), Disclosure::kReason);
  EXPECT_EQ(disclosure("5.6.7.8", seen_at("1.2.3.4", "", {"192.168.1.2"})), Disclosure::kFull);
  EXPECT_EQ(disclosure("5.6.7.8", seen_at("1.2.3.4", "a.example")), Disclosure::kFailure);
  EXPECT_EQ(disclosure("5.6.7.8", seen_at("1.2.3.4", "1.2.3.5")), Disclosure::kFailure);
  EXPECT_EQ(disclosure("10.0.0.9", seen_at("10.0.0.7", "10.0.0.1")), Disclosure::kFailure);
}

TEST(AddressChoice, AHostThatLeadsElsewhereIsRefused) {
  for (const char* host : {"127.0.0.1", "127.1", "::1", "0.0.0.0", "::ffff:127.0.0.1", "localhost",
                           "169.254.169.254", "fe80::1", "224.0.0.1"}) {
    EXPECT_NE(refuse_host(host, seen_at("1.2.3.4")), "") << host;
    EXPECT_NE(refuse_host(host, seen_at("10.0.0.7")), "") << host;
    EXPECT_EQ(refuse_host(host, seen_at("127.0.0.1")), "") << host;
  }
  EXPECT_EQ(refuse_host("127.0.0.1", seen_at("1.2.3.4")),
            "this peer advertises 127.0.0.1, a loopback address, and the master sees it at "
            "1.2.3.4: the others would not reach this peer there. Set PCCL_ADVERTISE to an address "
            "or a name at which they reach it, or unset it");
  for (const char* host : {"", "a.example", "10.0.0.7", "1.2.3.9", "2001:db8::1"})
    EXPECT_EQ(refuse_host(host, seen_at("1.2.3.4")), "") << host;
  EXPECT_EQ(refuse_host("fe80::1", seen_at("fe80::1%eth0")), "") << "the master sees it there";
}

TEST(AddressChoice, FurtherAddressesAreNumbersWithPorts) {
  EXPECT_TRUE(are_numeric({{"127.0.0.1", 1}, {"10.0.0.7", 1}, {"fe80::1", 1}}));
  EXPECT_FALSE(are_numeric({{"10.0.0.7", 1}, {"a.example", 1}}));
  EXPECT_FALSE(are_numeric({{"10.0.0.7", 0}}));
}

TEST(AddressChoice, FurtherAddressesThatLeadElsewhereAreLeftOut) {
  EXPECT_EQ(dialable({{"127.0.0.1", 1},
                      {"10.0.0.7", 1},
                      {"fe80::1", 1},
                      {"::ffff:1.2.3.4", 1},
                      {"2001:db8::1", 1}}),
            (std::vector<Endpoint>{{"10.0.0.7", 1}, {"2001:db8::1", 1}}));
}

}  // namespace
}  // namespace pccl::master
