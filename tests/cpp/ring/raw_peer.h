// RawPeer: the other end of a link as a bare socket, for tests that must send what no honest peer
// sends. Its calls block, by default for at most ten seconds per wait.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <span>
#include <vector>

#include "csrc/base/result.h"
#include "csrc/net/framing.h"
#include "csrc/protocol/messages.h"

namespace pccl::ring {

inline constexpr uint64_t kRun = 99;

class RawPeer {
 public:
  explicit RawPeer(int fd) : fd_(fd) {}
  // Connects to a port of 127.0.0.1.
  static RawPeer dial(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::close(fd);
    return RawPeer(fd);
  }
  RawPeer(RawPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawPeer& operator=(RawPeer&&) = delete;
  ~RawPeer() {
    if (fd_ >= 0) ::close(fd_);
  }

  // The hello of peer `self` of run `run_id` to peer `other`.
  static net::FrameHeader hello(net::FrameType type, PeerId self, PeerId other, uint64_t run_id) {
    net::FrameHeader header;
    header.type = type;
    header.epoch = Epoch{run_id};
    header.op.tag = TagId{self.value};
    header.digest = other.value;
    header.slice = protocol::kSpoken.lowest;
    header.op.sequence = protocol::kSpoken.highest;
    const bool dials = type == net::FrameType::kHello;
    header.block = protocol::next_serial(0, dials == (self > other));
    return header;
  }

  void say(const net::FrameHeader& header) { say(net::encode_header(header)); }
  void say(std::span<const std::byte> bytes) {
    [[maybe_unused]] const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // The next frame; nothing if the other end hung up or sent nothing in time.
  std::optional<net::FrameHeader> hear(int timeout_ms = 10000) {
    net::HeaderBytes bytes;
    for (size_t at = 0; at < bytes.size();) {
      pollfd readable{fd_, POLLIN, 0};
      if (poll(&readable, 1, timeout_ms) <= 0) return {};
      const ssize_t got = recv(fd_, bytes.data() + at, bytes.size() - at, 0);
      if (got <= 0) return {};
      at += static_cast<size_t>(got);
    }
    Result<net::FrameHeader> header = net::decode_header(bytes);
    if (!header.ok()) return {};
    return header.value();
  }
  // The next bytes; none if the other end hung up or sent nothing in time.
  std::vector<std::byte> receive(int timeout_ms = 10000) {
    std::vector<std::byte> bytes(65536);
    pollfd readable{fd_, POLLIN, 0};
    const bool ready = poll(&readable, 1, timeout_ms) > 0;
    const ssize_t got = ready ? recv(fd_, bytes.data(), bytes.size(), 0) : 0;
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return bytes;
  }
  // True if the other end closes the connection in time.
  bool hung_up(int timeout_ms = 10000) {
    std::byte rest[4096];
    for (;;) {
      pollfd readable{fd_, POLLIN, 0};
      if (poll(&readable, 1, timeout_ms) <= 0) return false;
      if (recv(fd_, rest, sizeof rest, 0) <= 0) return true;
    }
  }

 private:
  int fd_;
};

}  // namespace pccl::ring
