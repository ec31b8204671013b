#include "csrc/net/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <utility>

#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"

namespace pccl::net {

std::string text(const Endpoint& endpoint) {
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? "[" + endpoint.host + "]" : endpoint.host;
  return host + ":" + std::to_string(endpoint.port);
}

Socket::Socket(int fd) : fd_(fd), fork_count_(fork_count()) {
  if (fd_ < 0) return;
  remember_descriptor(fd_);
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  fcntl(fd_, F_SETFD, fcntl(fd_, F_GETFD) | FD_CLOEXEC);
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Socket::~Socket() {
  if (fd_ >= 0 && fork_count_ == fork_count()) close_descriptor(fd_);
}

Socket::Socket(Socket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), fork_count_(other.fork_count_) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(fork_count_, other.fork_count_);
  Socket before = std::move(other);
  return *this;
}

std::string Socket::peer_host() const { return peer_address(fd_).host(); }
std::string Socket::local_host() const { return local_address(fd_).host(); }
bool Socket::is_loopback() const { return peer_address(fd_).is_loopback(); }

}  // namespace pccl::net
