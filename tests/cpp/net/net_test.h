// net_test: helpers that the tests of csrc/net share: running code on a loop, waiting for what
// another thread does, and connected sockets on loopback.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/net/address.h"
#include "csrc/net/loop.h"
#include "csrc/net/socket.h"

namespace pccl::net {

using Bytes = std::vector<std::byte>;

// Runs `what` on the loop and returns its result.
template <typename F>
auto on(Loop& loop, F what) {
  using Value = decltype(what());
  std::packaged_task<Value()> task(std::move(what));
  std::future<Value> done = task.get_future();
  auto shared = std::make_shared<std::packaged_task<Value()>>(std::move(task));
  loop.post([shared] { (*shared)(); });
  EXPECT_EQ(done.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  return done.get();
}

// Waits until `condition`, evaluated on the loop, holds; false after `limit`.
inline bool eventually(Loop& loop, const std::function<bool()>& condition,
                       std::chrono::milliseconds limit = std::chrono::seconds(30)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!on(loop, condition)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// A blocking socket that listens on a free port of 127.0.0.1, and that port.
struct RawListener {
  explicit RawListener(int backlog = 16) : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, raw(), sizeof address), 0);
    EXPECT_EQ(listen(fd, backlog), 0);
    socklen_t length = sizeof address;
    getsockname(fd, raw(), &length);
  }
  ~RawListener() { ::close(fd); }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&address); }
  uint16_t port() const { return ntohs(address.sin_port); }
  int connect_one() {
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::connect(client, raw(), sizeof address), 0);
    return client;
  }

  int fd;
  sockaddr_in address{};
};

// Two connected blocking descriptors.
inline std::pair<int, int> connected_fds() {
  RawListener listener;
  const int client = listener.connect_one();
  const int server = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
  EXPECT_GE(server, 0);
  return {client, server};
}

inline Bytes random_bytes(std::mt19937_64& random, size_t size) {
  Bytes bytes(size);
  for (size_t at = 0; at < size; ++at) bytes[at] = static_cast<std::byte>(random() >> 24);
  return bytes;
}

// Whether this machine has ::1. Many containers have IPv6 switched off: IPv6 sockets can then be
// made, but not bound.
inline bool has_ipv6_loopback() {
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (fd >= 0) ::close(fd);
  return bound;
}

// A name of 127.0.0.1 that the system looks up; pccl knows it in small letters. On a machine
// without /etc/hosts the lookup may fail.
inline constexpr const char* kLookedUp = "LOCALHOST";
inline bool has_names() { return resolve_now(kLookedUp, 1).ok(); }

// A port of 127.0.0.1 on which nobody listens.
inline uint16_t free_port() { return RawListener{}.port(); }

// Runs `what` in a forked child. Returns its exit status, 128 + its signal, or -1 if it did not end
// within 10 s.
inline int in_child(const std::function<int()>& what) {
  const pid_t child = fork();
  if (child == 0) _exit(what());
  for (int i = 0; i < 1000; ++i) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

}  // namespace pccl::net
