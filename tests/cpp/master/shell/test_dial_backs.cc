#include "master/shell/dial_backs.h"

#include <gtest/gtest.h>

#include <array>
#include <future>

#include "csrc/base/little_endian.h"
#include "tests/cpp/master/client.h"
#include "tests/cpp/net/net_test.h"

namespace pccl::master {
namespace {

// Connections that only count.
class DialBacksTest : public testing::Test {
 protected:
  DialBacksTest() {
    net::on(loop, [this] {
      dial_backs = std::make_unique<DialBacks>(loop, [this](ConnectionId id, const auto& result) {
        dial_backs->forget(id);
        answers.at(id.value).set_value(result);
      });
      return 0;
    });
  }
  ~DialBacksTest() override {
    net::on(loop, [this] { return dial_backs.reset(), 0; });
  }
  std::optional<protocol::Reject> add(uint64_t id, const std::string& host, uint16_t port) {
    return net::on(loop, [&] {
      answers[id] = {};
      return dial_backs->add({id}, host, port);
    });
  }
  protocol::DialedBack answer(uint64_t id) {
    auto answer = net::on(loop, [&] { return answers.at(id).get_future(); });
    EXPECT_EQ(answer.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    return answer.get();
  }

  std::map<uint64_t, std::promise<protocol::DialedBack>> answers;
  net::Loop loop{"dial backs"};
  std::unique_ptr<DialBacks> dial_backs;
};

// A port of this machine that accepts connections, and keeps their bytes.
class Door {
 public:
  explicit Door(int queue = 4) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = address();  // any free port
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(fd_, queue), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port = ntohs(at.sin_port);
    const timeval limit{20, 0};
    EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
  }
  ~Door() { close(fd_); }
  // All bytes of the next connection, as a number.
  uint64_t proof() const {
    const int caller = accept(fd_, nullptr, nullptr);
    EXPECT_GE(caller, 0);
    std::array<std::byte, 16> bytes{};
    const ssize_t got = recv(caller, bytes.data(), bytes.size(), MSG_WAITALL);
    close(caller);
    EXPECT_EQ(got, ssize_t{sizeof(uint64_t)}) << "the number, and then the end";
    return load_little_endian<uint64_t>(bytes.data());
  }
  sockaddr_in address() const {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }
  uint16_t port = 0;

 private:
  const int fd_;
};

TEST_F(DialBacksTest, AConnectionHasTheNumberOfTheAnswer) {
  const Door door;
  const auto before = static_cast<uint64_t>(unix_now().count());
  EXPECT_FALSE(add(1, "127.0.0.1", door.port));
  const protocol::DialedBack first = answer(1);
  EXPECT_TRUE(first.connected);
  EXPECT_EQ(first.host, "127.0.0.1");
  EXPECT_EQ(door.proof(), first.proof);
  EXPECT_GE(first.unix_ms, before);
  EXPECT_LE(first.unix_ms, static_cast<uint64_t>(unix_now().count()));
  EXPECT_FALSE(add(2, "127.0.0.1", door.port));
  EXPECT_NE(answer(2).proof, first.proof) << "random";
}

TEST_F(DialBacksTest, AClosedPortIsAKindOfFailure) {
  EXPECT_FALSE(add(1, "127.0.0.1", net::free_port()));
  const protocol::DialedBack found = answer(1);
  EXPECT_FALSE(found.connected);
  EXPECT_EQ(found.fault, LinkFault::kRefused);
  EXPECT_EQ(found.proof, 0u);
}

TEST_F(DialBacksTest, WithoutAPortTheAnswerIsTheTimeAlone) {
  EXPECT_FALSE(add(1, "127.0.0.1", 0));
  const protocol::DialedBack found = answer(1);
  EXPECT_FALSE(found.connected);
  EXPECT_GT(found.unix_ms, 1'600'000'000'000u);
}

TEST_F(DialBacksTest, ANetworkMayAskSoManyTimes) {
  constexpr uint64_t kBurst = DialBacks::kBurst;
  for (uint64_t id = 1; id <= kBurst; ++id) {
    EXPECT_FALSE(add(id, "192.0.2.1", 0));
    answer(id);
  }
  const auto refused = add(kBurst + 1, "192.0.2.1", 0);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, Code::kInvalidState);
  EXPECT_FALSE(add(kBurst + 2, "198.51.100.1", 0)) << "another network";
}

TEST_F(DialBacksTest, SoManyAtOnce) {
  constexpr uint64_t kMost = DialBacks::kAtOnceMax;
  // A full queue: the system answers no further connection.
  const Door door(0);
  std::vector<int> queued;
  for (int i = 0; i < 4; ++i) {
    queued.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const sockaddr_in to = door.address();
    connect(queued.back(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  for (uint64_t id = 1; id <= kMost; ++id) EXPECT_FALSE(add(id, "127.0.0.1", door.port)) << id;
  EXPECT_TRUE(add(kMost + 1, "127.0.0.1", door.port));
  net::on(loop, [&] {
    dial_backs->forget({1});
    return 0;
  });
  EXPECT_FALSE(add(kMost + 2, "127.0.0.1", door.port));
  for (const int fd : queued) close(fd);
}

}  // namespace
}  // namespace pccl::master
