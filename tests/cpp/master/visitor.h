// Visitor: a browser of a master, as a blocking socket, for tests that send what browsers send, and
// what none would. Every wait has a bound.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace pccl::master {

class Visitor {
 public:
  // `receives`: the size of its receive buffer in bytes; 0: the system chooses it.
  explicit Visitor(uint16_t port, int receives = 0)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receives > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receives, sizeof receives);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~Visitor() { close(fd_); }
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;

  // Returns false once the other side has closed.
  bool say(const std::string& text) {
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  void get(const std::string& target, const std::string& headers = "") {
    EXPECT_TRUE(say("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n"));
  }
  // All that comes until the connection ends, or until it has `end`. "(no end)" follows if nothing
  // comes for a long time.
  std::string on(const std::string& end = "") {
    std::string heard;
    char piece[4096];
    while (end.empty() || heard.find(end) == std::string::npos) {
      if (!is_readable(std::chrono::seconds(30))) return heard + "(no end)";
      const ssize_t count = recv(fd_, piece, sizeof piece, 0);
      if (count <= 0) return heard;
      heard.append(piece, static_cast<size_t>(count));
    }
    return heard;
  }
  std::string ask(const std::string& target, const std::string& headers = "") {
    get(target, headers);
    return on();
  }
  // Whether the other side has sent something, or has closed, within `at_most`.
  bool is_readable(std::chrono::milliseconds at_most) const {
    pollfd poll_fd{fd_, POLLIN, 0};
    return poll(&poll_fd, 1, static_cast<int>(at_most.count())) == 1;
  }
  // Whether the other side closes the connection within `at_most`. Reads nothing.
  bool is_closed(std::chrono::milliseconds at_most = std::chrono::seconds(30)) const {
    pollfd poll_fd{fd_, POLLRDHUP, 0};
    return poll(&poll_fd, 1, static_cast<int>(at_most.count())) == 1;
  }

 private:
  int fd_;
};

}  // namespace pccl::master
