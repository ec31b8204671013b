#include "csrc/net/address.h"

#include <unistd.h>
#include <uv.h>

#include "tests/cpp/net/net_test.h"

namespace pccl::net {
namespace {

Address literal(const std::string& host) {
  std::vector<Address> addresses = literal_address(host, 48148);
  EXPECT_EQ(addresses.size(), 1u) << host;
  return addresses.empty() ? Address{} : addresses[0];
}

TEST(Address, LiteralsComeBackAsTheyWere) {
  for (const char* host : {"10.0.0.7", "127.0.0.1", "::1", "2001:db8::7"}) {
    EXPECT_EQ(literal(host).host(), host);
    EXPECT_EQ(literal(host).port(), 48148);
  }
  EXPECT_EQ(literal("::ffff:10.0.0.7").host(), "10.0.0.7");
  EXPECT_TRUE(literal_address(kLookedUp, 1).empty());
  EXPECT_TRUE(literal_address("", 1).empty());
}

TEST(Address, ThisMachineNeedsNoLookup) {
  const std::vector<Address> both = literal_address("localhost", 48148);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0], literal("::1"));
  EXPECT_EQ(both[1], literal("127.0.0.1"));
  EXPECT_EQ(resolve_now("localhost", 48148).value(), both);
}

TEST(Address, KnowsLoopback) {
  for (const char* host : {"127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(literal(host).is_loopback()) << host;
  }
  for (const char* host : {"128.0.0.1", "10.0.0.127", "::2", "::ffff:10.0.0.7", "::"}) {
    EXPECT_FALSE(literal(host).is_loopback()) << host;
  }
}

// The only check that is possible: the system accepts them as addresses of this machine.
TEST(Address, InterfacesHaveAddressesOfThisMachine) {
  for (const std::string& host : interface_hosts()) {
    Address own = literal(host.substr(0, host.find('%')));
    EXPECT_FALSE(own.is_loopback()) << host;
    if (host.find(':') != std::string::npos) continue;  // a link-local address needs its scope
    own.set_port(0);
    const int fd = socket(own.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(fd, own.raw(), own.length), 0) << host;
    close(fd);
  }
}

TEST(Address, AMachineHasOneNumber) {
  EXPECT_EQ(machine_id(), machine_id());
  EXPECT_NE(machine_id(), 0u);
}

TEST(Address, AnUnknownNameHasNone) {
  // A label over 63 bytes is refused without a query.
  EXPECT_EQ(resolve_now(std::string(70, 'x'), 7).status().message, "unknown host name");
}

TEST(Address, NamesHaveAddresses) {
  if (!has_names()) GTEST_SKIP() << "this machine finds no address of " << kLookedUp;
  Result<std::vector<Address>> addresses = resolve_now(kLookedUp, 7);
  ASSERT_TRUE(addresses.ok());
  ASSERT_FALSE(addresses.value().empty());
  for (const Address& address : addresses.value()) {
    EXPECT_TRUE(address.is_loopback());
    EXPECT_EQ(address.port(), 7);
  }
}

TEST(Address, ErrorsReadLikeAText) {
  EXPECT_EQ(error_text(ECONNREFUSED), "connection refused");
  EXPECT_EQ(error_text(EADDRINUSE), "address already in use");
  EXPECT_EQ(resolve_error_text(UV_EAI_NONAME), "unknown host name");
}

TEST(Address, WithoutAConnectionThereIsNone) {
  EXPECT_EQ(peer_address(-1).family(), AF_UNSPEC);
  EXPECT_EQ(local_address(-1).host(), "");
}

}  // namespace
}  // namespace pccl::net
