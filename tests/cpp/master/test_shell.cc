#include "master/shell.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <thread>

#include "csrc/protocol/codec.h"
#include "csrc/protocol/limits.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using protocol::Message;
using std::chrono::milliseconds;

// A peer that is a blocking socket: says messages, and hears them one by one.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void say_bytes(std::span<const std::byte> bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void say(const Message& message) {
    std::vector<std::byte> bytes;
    protocol::encode(message, bytes);
    say_bytes(bytes);
  }
  // The next message that is no Ping; those are answered. Nothing at the end of the connection, or
  // when none comes in time.
  std::optional<Message> hear(milliseconds at_most = std::chrono::seconds(10)) {
    const auto until = std::chrono::steady_clock::now() + at_most;
    while (!ended_ && std::chrono::steady_clock::now() < until) {
      auto next = decoder_.next();
      if (!next.ok()) return std::nullopt;
      if (!next.value()) {
        read_some(10);
      } else if (const auto* ping = std::get_if<protocol::Ping>(&*next.value())) {
        say(protocol::Pong{ping->counter, 0, {}});
      } else {
        return next.value();
      }
    }
    return std::nullopt;
  }
  template <typename M>
  std::optional<M> hear_a() {
    const auto message = hear();
    const M* found = message ? std::get_if<M>(&*message) : nullptr;
    EXPECT_NE(found, nullptr) << (message ? protocol::name(*message) : "nothing");
    return found == nullptr ? std::nullopt : std::optional<M>(*found);
  }
  bool hears_the_end(milliseconds at_most = std::chrono::seconds(10)) {
    return !hear(at_most) && ended_;
  }
  // Introduces itself; with min_peers 1 it is admitted at once.
  protocol::Welcome join(const std::string& run) {
    protocol::Hello hello = Harness::hello(1);
    hello.run = run;
    say(hello);
    const auto welcome = hear_a<protocol::Welcome>();
    say(protocol::Register{"", 1});
    EXPECT_TRUE(hear_a<protocol::EpochStart>().has_value());
    return welcome.value_or(protocol::Welcome{});
  }

 private:
  void read_some(int wait_ms) {
    pollfd poll_fd{fd_, POLLIN, 0};
    if (poll(&poll_fd, 1, wait_ms) <= 0) return;
    std::byte bytes[4096];
    const ssize_t count = recv(fd_, bytes, sizeof bytes, 0);
    if (count <= 0) {
      ended_ = true;
    } else {
      decoder_.feed({bytes, static_cast<size_t>(count)});
    }
  }
  int fd_;
  bool ended_ = false;
  protocol::Decoder decoder_;
};

class ShellTest : public testing::Test {
 protected:
  ShellTest() {
    auto opened = Shell::open({"127.0.0.1", 0});
    EXPECT_TRUE(opened.ok()) << opened.status().message;
    shell = std::move(opened.value());
  }
  std::unique_ptr<Shell> shell;
};

TEST_F(ShellTest, AdmitsAPeerAndSaysWhereItIsSeen) {
  Client peer(shell->port());
  const protocol::Welcome welcome = peer.join("run");
  EXPECT_EQ(welcome.seen_host, "127.0.0.1");
  EXPECT_TRUE(welcome.loopback_only);
  EXPECT_NE(welcome.run_id, 0u);
  EXPECT_GT(welcome.incarnation, 1600000000u) << "seconds of the clock, while there is no journal";
}

TEST_F(ShellTest, ServesManyRunsIndependently) {
  Client one(shell->port()), other(shell->port());
  EXPECT_NE(one.join("one").run_id, other.join("other").run_id);
}

TEST_F(ShellTest, StrangersTogetherHoldOnlySoMuch) {
  protocol::Hello hello = Harness::hello(1);
  std::vector<std::byte> bytes;
  protocol::encode(hello, bytes);
  const uint32_t claimed = protocol::kMessageBytesMax;
  std::memcpy(bytes.data(), &claimed, sizeof claimed);
  bytes.resize(protocol::kMessageBytesMax / 2);  // half of what it claims
  std::deque<Client> strangers;
  for (size_t sent = 0; sent <= protocol::kStrangersBytesMax; sent += bytes.size()) {
    strangers.emplace_back(shell->port()).say_bytes(bytes);
  }
  size_t closed = 0;
  for (Client& stranger : strangers) closed += stranger.hears_the_end(milliseconds(200)) ? 1 : 0;
  EXPECT_EQ(closed, 1u) << "the last straw, and no more";
  Client peer(shell->port());
  peer.join("run");
}

TEST_F(ShellTest, AMessageMayComeInPiecesAndSeveralAtOnce) {
  Client peer(shell->port());
  std::vector<std::byte> bytes;
  protocol::encode(Harness::hello(1), bytes);
  const size_t hello_bytes = bytes.size();
  protocol::encode(protocol::Register{"", 1}, bytes);
  protocol::encode(protocol::Ping{7, 0, {}}, bytes);
  const std::span<const std::byte> all(bytes);
  for (size_t i = 0; i + 1 < hello_bytes; ++i) peer.say_bytes(all.subspan(i, 1));
  peer.say_bytes(all.subspan(hello_bytes - 1));
  EXPECT_TRUE(peer.hear_a<protocol::Welcome>().has_value());
  EXPECT_TRUE(peer.hear_a<protocol::EpochStart>().has_value());
  EXPECT_EQ(peer.hear_a<protocol::Pong>()->counter, 7u);
}

TEST_F(ShellTest, AnotherVersionIsRefusedWithBoth) {
  Client peer(shell->port());
  protocol::Hello hello = Harness::hello(1);
  hello.version = 77;
  peer.say(hello);
  const auto reject = peer.hear_a<protocol::Reject>();
  ASSERT_TRUE(reject.has_value());
  EXPECT_TRUE(contains(reject->text, "version 77")) << reject->text;
  EXPECT_TRUE(contains(reject->text, "version 7:")) << reject->text;
  EXPECT_TRUE(peer.hears_the_end());
}

TEST_F(ShellTest, ARunWhoseNameCannotBeShownIsRefused) {
  Client peer(shell->port());
  protocol::Hello hello = Harness::hello(1);
  hello.run = "x\nforged\x1b[2J";
  peer.say(hello);
  auto reject = peer.hear_a<protocol::Reject>();
  ASSERT_TRUE(reject.has_value());
  EXPECT_TRUE(contains(reject->text, "characters that cannot be shown: \"x\\nforged\\x1b[2J\""))
      << reject->text;
  EXPECT_TRUE(peer.hears_the_end());
  Client late(shell->port());
  protocol::Resume resume;
  resume.run = hello.run;
  late.say(resume);
  reject = late.hear_a<protocol::Reject>();
  ASSERT_TRUE(reject.has_value());
  EXPECT_TRUE(contains(reject->text, "cannot be shown")) << reject->text;
  EXPECT_TRUE(late.hears_the_end());
}

TEST_F(ShellTest, ATagThatCannotBeShownCostsTheConnection) {
  Client peer(shell->port());
  peer.join("run");
  protocol::Begin begin;
  begin.info.tag = "a\nb";
  peer.say(begin);
  EXPECT_TRUE(peer.hears_the_end());
}

TEST_F(ShellTest, WhatIsNoMessageCostsTheConnection) {
  Client stranger(shell->port());
  const std::string text = "GET / HTTP/1.1\r\n\r\n";
  stranger.say_bytes(std::as_bytes(std::span(text)));
  EXPECT_TRUE(stranger.hears_the_end());
  Client impolite(shell->port());
  impolite.say(protocol::Leave{});
  EXPECT_TRUE(impolite.hears_the_end());
  Client peer(shell->port());
  peer.join("run");
  peer.say_bytes(std::as_bytes(std::span(text)));
  EXPECT_TRUE(peer.hears_the_end());
}

TEST_F(ShellTest, WhoSaysNothingIsClosed) {
  const auto start = std::chrono::steady_clock::now();
  Client silent(shell->port());
  EXPECT_TRUE(silent.hears_the_end());
  EXPECT_GE(std::chrono::steady_clock::now() - start, protocol::kHelloTimeout - milliseconds(100));
}

TEST_F(ShellTest, APeerResumesAndALaterLifeOfTheRunRefusesIt) {
  Client peer(shell->port());
  const protocol::Welcome welcome = peer.join("run");
  peer.close();
  protocol::Resume resume;
  resume.run = "run";
  resume.run_id = welcome.run_id;
  resume.peer = welcome.peer;
  Client again(shell->port());
  again.say(resume);
  EXPECT_TRUE(again.hear_a<protocol::Resumed>().has_value());
  EXPECT_TRUE(again.hear_a<protocol::EpochStart>().has_value()) << "as if it had never seen it";
  again.say(protocol::Leave{});
  EXPECT_TRUE(again.hears_the_end());
  Client late(shell->port());
  late.say(resume);
  EXPECT_EQ(late.hear_a<protocol::Reject>()->code, Code::kMasterLost) << "the run is forgotten";
  Client fresh(shell->port());
  EXPECT_NE(fresh.join("run").run_id, welcome.run_id);
  Client later(shell->port());
  later.say(resume);
  EXPECT_EQ(later.hear_a<protocol::Reject>()->code, Code::kMasterLost) << "another life of it";
}

TEST_F(ShellTest, ThePortIsItsOwn) {
  auto second = Shell::open({"127.0.0.1", shell->port()});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code, Code::kSystem);
  EXPECT_EQ(second.status().message, "cannot listen on 127.0.0.1:" + std::to_string(shell->port()) +
                                         ": address already in use");
}

TEST_F(ShellTest, DrainingWaitsUntilPeersHaveConfirmed) {
  shell->drain(std::chrono::seconds(10));  // nobody is there
  Client peer(shell->port());
  peer.join("run");
  const auto start = std::chrono::steady_clock::now();
  shell->drain(milliseconds(200));  // the peer does not answer
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(190));
  std::thread draining([this] { shell->drain(std::chrono::seconds(10)); });
  const auto answering = std::chrono::steady_clock::now();
  peer.hear(milliseconds(500));  // answers the Ping
  draining.join();
  EXPECT_LT(std::chrono::steady_clock::now() - answering, std::chrono::seconds(5));
}

TEST_F(ShellTest, ItsEndClosesEverything) {
  Client peer(shell->port()), silent(shell->port());
  peer.join("run");
  shell.reset();
  EXPECT_TRUE(peer.hears_the_end());
  EXPECT_TRUE(silent.hears_the_end());
}

TEST(ShellAddress, KnowsWhatIsLoopback) {
  EXPECT_TRUE(is_loopback({"127.0.0.1", 1}));
  EXPECT_TRUE(is_loopback({"::1", 1}));
  EXPECT_TRUE(is_loopback({"localhost", 1}));
  EXPECT_FALSE(is_loopback({"0.0.0.0", 1}));
  EXPECT_FALSE(is_loopback({"::", 1}));
  EXPECT_FALSE(is_loopback({"", 1}));
}

}  // namespace
}  // namespace pccl::master
