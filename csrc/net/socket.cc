#include "csrc/net/socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>  // the kernel's own header, which has tcpi_min_rtt
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"

namespace pccl::net {

namespace {

// The tolerance of would_begin_anew(), because the system records send times in ticks of some
// milliseconds.
constexpr Duration kTick = std::chrono::milliseconds(20);
// The largest number of unsent bytes in the buffer of a lane of a wan path.
constexpr uint64_t kUnsentBytesWan = 16u << 10;
// SO_BUF_LOCK of Linux 5.14, which older headers lack.
constexpr int kBufferLock = 72;

// Whether this machine's TCP loses its congestion window in an idle period, as it does by default.
bool silence_costs_windows() {
  static const bool costs = [] {
    std::ifstream file("/proc/sys/net/ipv4/tcp_slow_start_after_idle");
    char value = 0;
    return !(file >> value) || value != '0';
  }();
  return costs;
}

}  // namespace

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

PathInfo Socket::path() const {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  const bool measured = info.tcpi_min_rtt != UINT32_MAX;
  return {.smoothed = std::chrono::microseconds(info.tcpi_rtt),
          .least = std::chrono::microseconds(measured ? info.tcpi_min_rtt : 0),
          .segments = info.tcpi_data_segs_out,
          .segments_again = info.tcpi_total_retrans,
          .segments_arrived = info.tcpi_delivered,
          .segment_bytes = info.tcpi_snd_mss,
          .window = uint64_t{info.tcpi_snd_cwnd} * info.tcpi_snd_mss,
          .busy = std::chrono::microseconds(info.tcpi_busy_time),
          .held = std::chrono::microseconds(info.tcpi_sndbuf_limited)};
}

uint64_t Socket::buffers() const {
  tcp_info info{};
  socklen_t length = sizeof info;
  int send_buffer = 0;
  socklen_t size = sizeof send_buffer;
  if (getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      getsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &send_buffer, &size) != 0)
    return 0;
  return std::min<uint64_t>(send_buffer, info.tcpi_snd_wnd);
}

uint32_t Socket::segment() const {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  const int error = getsockopt(fd_, IPPROTO_TCP, TCP_MAXSEG, &bytes, &length);
  return error == 0 ? static_cast<uint32_t>(bytes) : 0;
}

// After a reset, the sequence numbers of TCP still exist, but its queue does not. SIOCOUTQ uses the
// sequence numbers.
uint64_t Socket::bytes_queued() const {
  int bytes = 0;
  return ioctl(fd_, SIOCOUTQ, &bytes) == 0 ? static_cast<uint64_t>(bytes) : 0;
}

void Socket::limit_segment(uint32_t bytes) const {
  const int value = static_cast<int>(bytes);
  setsockopt(fd_, IPPROTO_TCP, TCP_MAXSEG, &value, sizeof value);
}

void Socket::discard_at_end() const {
  const linger now{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

// If any limit is set, the system also paces at the rate that it estimates itself.
void Socket::pace(uint64_t bytes_per_second) const {
  setsockopt(fd_, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second, sizeof bytes_per_second);
}

bool Socket::would_begin_anew() const {
  if (!silence_costs_windows()) return false;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  const Duration silence = std::chrono::milliseconds(info.tcpi_last_data_sent);
  const Duration timeout = std::chrono::microseconds(info.tcpi_rto);
  return info.tcpi_unacked == 0 && silence + kTick >= timeout;
}

ssize_t Socket::send_after_silence(const msghdr& message) const {
  // If bbr is refused, or if the earlier congestion control cannot be set again after the call, bbr
  // is not requested any more: a system without bbr may search for a module each time.
  static std::atomic<bool> lends{true};
  const std::string before = congestion();
  const bool wanted = lends && !before.empty() && !before.starts_with("bbr");
  const bool borrowed = wanted && set_congestion("bbr");
  if (wanted && !borrowed) lends = false;
  const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
  const int error = errno;
  if (borrowed && !set_congestion(before)) {  // not permitted, although it was set before
    lends = false;
    set_congestion("reno");  // always permitted
  }
  errno = error;
  return sent;
}

bool Socket::set_congestion(const std::string& name) const {
  return setsockopt(fd_, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                    static_cast<socklen_t>(name.size())) == 0;
}

std::string Socket::congestion() const {
  char name[16] = {};  // TCP_CA_NAME_MAX
  socklen_t length = sizeof name;
  if (getsockopt(fd_, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return {};
  return {name, strnlen(name, length)};
}

bool Socket::paces_itself() const { return congestion().starts_with("bbr"); }

void Socket::tune(PathClass path, bool congestion) const {
  if (path == PathClass::kLocal) {
    // No packets are lost on a local path, so either algorithm is good enough. reno is always
    // permitted.
    if (congestion && paces_itself() && !set_congestion("cubic")) set_congestion("reno");
    return;
  }
  pace(kPaceAny);
  limit_unsent(kUnsentBytesWan);
}

void Socket::limit_unsent(uint64_t bytes) const {
  const int value = static_cast<int>(std::min<uint64_t>(bytes, std::numeric_limits<int>::max()));
  setsockopt(fd_, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, sizeof value);
}

void Socket::hold_at_most(uint32_t bytes) const {
  const int value = static_cast<int>(bytes);
  const int size_by_itself = 0;
  if (bytes > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &value, sizeof value);
  } else {
    setsockopt(fd_, SOL_SOCKET, kBufferLock, &size_by_itself, sizeof size_by_itself);
  }
}

}  // namespace pccl::net
