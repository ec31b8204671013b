// Asker: a client of a master's control socket, as a blocking Unix socket, for tests that send what
// `pccl runs` sends, and what it never would. Every wait has a bound.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace pccl::master {

class Asker {
 public:
  explicit Asker(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int phase = open(path.c_str(), O_PATH | O_CLOEXEC);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const bool fits = path.size() < sizeof address.sun_path;
    const std::string reach = fits ? path : "/proc/self/fd/" + std::to_string(phase);
    reach.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << path;
    close(phase);
  }
  ~Asker() { close(fd_); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  // Returns false once the other side has closed.
  bool say(const std::string& text) {
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // All that comes until the connection ends; "(no end)" follows if nothing comes for `at_most`.
  std::string on(std::chrono::milliseconds at_most = std::chrono::seconds(30)) {
    std::string heard;
    std::string piece(1u << 16, 0);
    for (;;) {
      pollfd poll_fd{fd_, POLLIN, 0};
      if (poll(&poll_fd, 1, static_cast<int>(at_most.count())) <= 0) return heard + "(no end)";
      const ssize_t count = recv(fd_, piece.data(), piece.size(), 0);
      if (count <= 0) return heard;
      heard.append(piece, 0, static_cast<size_t>(count));
    }
  }
  // Whether the other side closes the connection within `at_most`. Reads nothing.
  bool is_closed(std::chrono::milliseconds at_most = std::chrono::seconds(60)) const {
    pollfd poll_fd{fd_, 0, 0};
    return poll(&poll_fd, 1, static_cast<int>(at_most.count())) == 1 &&
           (poll_fd.revents & POLLHUP) != 0;
  }
  std::string ask(const std::string& text) {
    EXPECT_TRUE(say(text));
    return on();
  }

 private:
  const int fd_;
};

}  // namespace pccl::master
