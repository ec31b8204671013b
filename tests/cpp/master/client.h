// Client: a peer of a real master, as a blocking socket, for tests that send what no PeerCore
// would, or send it many times. Every wait has a bound.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/protocol/codec.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {

using protocol::Message;
using std::chrono::milliseconds;

// Sends messages, and receives them one by one.
class Client {
 public:
  // `from`: the address of 127.0.0.0/8 that it connects from.
  explicit Client(uint16_t port, const std::string& from = "127.0.0.1")
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, from.c_str(), &own.sin_addr), 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
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
  // Returns false once the other side has closed.
  bool may_say_bytes(std::span<const std::byte> bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  void say(const Message& message) {
    std::vector<std::byte> bytes;
    protocol::encode(message, bytes);
    say_bytes(bytes);
  }
  // The next message that is not a Ping; Pings are answered. Nothing at the end of the connection,
  // or if no message comes in time.
  std::optional<Message> on(milliseconds at_most = std::chrono::seconds(10)) {
    const auto until = std::chrono::steady_clock::now() + at_most;
    for (bool first = true; !ended_; first = false) {
      if (!first && std::chrono::steady_clock::now() >= until) break;
      auto next = decoder_.next();
      if (!next.ok()) return std::nullopt;
      if (!next.value()) {
        read_some(at_most == milliseconds(0) ? 0 : 10);
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
    const auto message = on();
    const M* found = message ? std::get_if<M>(&*message) : nullptr;
    EXPECT_NE(found, nullptr) << (message ? protocol::name(*message) : "nothing");
    return found == nullptr ? std::nullopt : std::optional<M>(*found);
  }
  bool hears_the_end(milliseconds at_most = std::chrono::seconds(10)) {
    return !on(at_most) && ended_;
  }
  // Joins the run; with min_peers 1 it is admitted at once.
  protocol::Welcome join(const std::string& run) {
    protocol::Hello hello = Harness::hello(1);
    hello.run = run;
    say(hello);
    const auto welcome = hear_a<protocol::Welcome>();
    say(protocol::Register{"", 1});
    const auto start = hear_a<protocol::EpochStart>();
    EXPECT_TRUE(start.has_value());
    if (start) epoch_ = start->epoch;
    return welcome.value_or(protocol::Welcome{});
  }
  Epoch epoch() const { return epoch_; }  // the epoch that it joined

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
  Epoch epoch_;
  bool ended_ = false;
  protocol::Decoder decoder_;
};

}  // namespace pccl::master
