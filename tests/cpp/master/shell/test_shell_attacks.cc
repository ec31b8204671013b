// Hostile handshakes with the port of a master that has a keyring.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <deque>
#include <fstream>

#include "csrc/base/log.h"
#include "csrc/base/token.h"
#include "csrc/net/stream.h"
#include "csrc/net/token_channel.h"
#include "master/shell/shell.h"
#include "tests/cpp/master/client.h"
#include "tests/cpp/master/keyring_lines.h"
#include "tests/cpp/net/net_test.h"
#include "tests/cpp/net/tls_listener.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

namespace forge = net::forge;

bool is_welcome(const net::Bytes& answer) {
  protocol::Decoder decoder;
  decoder.feed(answer);
  auto message = decoder.next();
  return message.ok() && message.value() &&
         std::holds_alternative<protocol::Welcome>(*message.value());
}

// A master that knows the token alice000.
auto open_secured(const TempFolder& folder) {
  const std::string keyring = folder.path() + "/keyring";
  std::ofstream(keyring) << kKeyringHead << token_line("alice000", secret_hex("a5"));
  EXPECT_EQ(chmod(keyring.c_str(), 0600), 0);
  return Shell::open({"127.0.0.1", 0}, {}, {}, protocol::kSpoken, {keyring});
}

TEST(ShellAttacks, NoneGetsInAndNoneIsLeft) {
  const TempFolder folder;
  auto shell = open_secured(folder);
  ASSERT_TRUE(shell.ok()) << shell.status().message;
  net::Bytes secret(32);
  std::fill(secret.begin(), secret.end(), std::byte{0xa5});
  forge::shown = {"alice000", net::control_key(secret)};
  net::Bytes hello;
  protocol::encode(Harness::hello(1), hello);
  testing::internal::CaptureStderr();
  forge::withstands({.port = shell.value()->port(),
                     .plain_answer = "admits only peers that have a token",
                     .said = [hello] { return hello; },
                     .is_right = is_welcome});
  EXPECT_TRUE(flush_log(std::chrono::seconds(60)));
  const std::string log = testing::internal::GetCapturedStderr();
  forge::shown = {};
  const std::string warning = "refused 1 connection from 127.0.0.1 because of its token";
  EXPECT_NE(log.find(warning), std::string::npos) << log;
  const std::string plain = "from 127.0.0.1 without a token: a peer that has no PCCL_SECRET_FILE";
  const size_t first = log.find(plain);
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(plain, first + 1), std::string::npos) << "once in 10 seconds: " << log;
}

// A connection that proves the token alice000, whose secret is 0xa5 everywhere.
class ProvenClient {
 public:
  explicit ProvenClient(uint16_t port) : at_{"127.0.0.1", port} {
    loop_.post([this] {
      connector_ = std::make_unique<net::Connector>(
          loop_, at_, std::chrono::seconds(5),
          [this](Result<net::Socket> socket) { connected(std::move(socket.value())); });
    });
    EXPECT_TRUE(net::eventually(loop_, [this] { return established_; }));
  }
  ~ProvenClient() {
    net::on(loop_, [this] { return stream_.reset(), connector_.reset(), 0; });
  }
  bool closed() {
    return net::on(loop_, [this] { return closed_; });
  }
  bool is_welcomed() {
    std::vector<std::byte> hello;
    protocol::encode(Harness::hello(1), hello);
    net::on(loop_, [&] { return stream_->send(hello), 0; });
    return net::eventually(loop_, [this] { return closed_ || is_welcome(heard_); }) && !closed();
  }

 private:
  void connected(net::Socket socket) {
    auto channel = net::channel_to_master(std::move(socket), at_, &token_, false,
                                          monotonic_now() + std::chrono::seconds(5));
    stream_ = std::make_unique<net::Stream>(
        loop_, std::move(channel.value()),
        net::Stream::Callbacks{
            .on_bytes =
                [this](auto bytes) { heard_.insert(heard_.end(), bytes.begin(), bytes.end()); },
            .on_closed = [this](const Status&) { closed_ = true; },
            .on_established = [this] { established_ = true; }});
  }
  const Endpoint at_;
  const pccl::Token token_ =
      std::move(parse_token("pccl1.alice000.paWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaU").value());
  net::Loop loop_{"test"};
  std::unique_ptr<net::Connector> connector_;
  std::unique_ptr<net::Stream> stream_;
  net::Bytes heard_;
  bool established_ = false, closed_ = false;
};

// With 256 descriptors, a master keeps 64 connections that have not introduced themselves.
TEST(ShellAttacks, SilentStrangersDoNotPushOutAConnectionWithAProof) {
  const TempFolder folder;
  auto shell = open_secured(folder);
  ASSERT_TRUE(shell.ok()) << shell.status().message;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{256, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  {
    ProvenClient slow(shell.value()->port());
    std::this_thread::sleep_for(milliseconds(50));  // the master gets the proof
    std::deque<Client> silent;
    for (int i = 0; i < 100; ++i) silent.emplace_back(shell.value()->port());
    EXPECT_TRUE(silent.front().hears_the_end()) << "there is not room for all";
    EXPECT_FALSE(slow.closed());
    EXPECT_TRUE(slow.is_welcomed());
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace pccl::master
