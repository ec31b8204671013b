#include "csrc/net/socket.h"

#include <fcntl.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <climits>

#include "tests/cpp/net/net_test.h"

namespace pccl::net {
namespace {

TEST(Endpoint, TextPutsBracketsAroundIpv6) {
  EXPECT_EQ(text(Endpoint{"host", 1}), "host:1");
  EXPECT_EQ(text(Endpoint{"10.0.0.7", 48148}), "10.0.0.7:48148");
  EXPECT_EQ(text(Endpoint{"::1", 48148}), "[::1]:48148");
}

TEST(Socket, SetsItsFlagsAndKnowsItsEnds) {
  const auto [client, server] = connected_fds();
  const Socket socket(client);
  const Socket other(server);
  EXPECT_TRUE(fcntl(client, F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(client, F_GETFD) & FD_CLOEXEC);
  int no_delay = 0;
  socklen_t length = sizeof no_delay;
  getsockopt(client, IPPROTO_TCP, TCP_NODELAY, &no_delay, &length);
  EXPECT_EQ(no_delay, 1);
  EXPECT_EQ(socket.peer_host(), "127.0.0.1");
  EXPECT_EQ(other.local_host(), "127.0.0.1");
  EXPECT_TRUE(socket.is_loopback());
  EXPECT_TRUE(socket);
  EXPECT_FALSE(Socket());
}

TEST(Socket, KnowsHowFarTheOtherEndIsAndSuitsItself) {
  const auto [client, server] = connected_fds();
  const Socket socket(client);
  const Socket other(server);
  EXPECT_GT(socket.path().least, Duration::zero());
  EXPECT_GE(socket.path().smoothed, socket.path().least);
  EXPECT_LT(socket.path().smoothed, std::chrono::seconds(1));
  EXPECT_GE(socket.path().window, 1000u);
  EXPECT_EQ(Socket().path().window, 0u);
  EXPECT_GE(socket.buffers(), 4096u);
  EXPECT_EQ(Socket().buffers(), 0u);
  EXPECT_EQ(Socket().path().least, Duration::zero());
  EXPECT_EQ(socket.path().segments, 0u);
  const uint32_t arrived = socket.path().segments_arrived;
  ASSERT_EQ(write(client, "tensor", 6), 6);
  EXPECT_EQ(socket.path().segments, 1u);
  // Waits until its ACK comes.
  while (socket.path().segments_arrived == arrived) std::this_thread::yield();
  EXPECT_EQ(socket.path().segments_arrived, arrived + 1);
  EXPECT_GE(socket.path().segment_bytes, 536u) << "RFC 9293: the least that any host takes";
  EXPECT_EQ(socket.path().segments_again, 0u);
  EXPECT_EQ(Socket().path().segments, 0u);
  const std::vector<std::byte> more(16u << 20);  // the other end reads nothing
  ASSERT_GT(send(client, more.data(), more.size(), MSG_DONTWAIT), 0);
  while (socket.path().busy == Duration::zero()) std::this_thread::yield();
  EXPECT_GE(socket.path().busy, socket.path().held);
  EXPECT_EQ(Socket().path().busy, Duration::zero());
  uint64_t pace = 0;
  socklen_t length = sizeof pace;
  socket.tune(PathClass::kWan, true);
  ASSERT_EQ(getsockopt(client, SOL_SOCKET, SO_MAX_PACING_RATE, &pace, &length), 0);
  EXPECT_NE(pace, UINT64_MAX) << "unlimited: not paced";
  EXPECT_GT(pace, 100'000'000'000u);
  int unsent = 0;
  length = sizeof unsent;
  ASSERT_EQ(getsockopt(client, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, &length), 0);
  EXPECT_EQ(unsent, 16 << 10);
  for (const uint64_t most : {uint64_t{100'000}, uint64_t{1} << 40}) {
    socket.limit_unsent(most);
    ASSERT_EQ(getsockopt(client, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, &length), 0);
    EXPECT_EQ(unsent, static_cast<int>(std::min<uint64_t>(most, INT_MAX)));
  }
}

TEST(Socket, CanDiscardWhatHasNotLeft) {
  const auto [client, server] = connected_fds();
  {
    const Socket socket(client);
    socket.discard_at_end();
  }
  char byte = 0;
  EXPECT_EQ(recv(server, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
  close(server);
}

TEST(Socket, DoesNotPaceOnANearWay) {
  const auto [client, server] = connected_fds();
  const Socket socket(client);
  const Socket other(server);
  ASSERT_TRUE(socket.set_congestion("reno"));
  EXPECT_EQ(socket.congestion(), "reno");
  EXPECT_FALSE(socket.paces_itself());
  EXPECT_FALSE(socket.set_congestion("none-such"));
  EXPECT_EQ(socket.congestion(), "reno");
  socket.tune(PathClass::kLocal, true);
  EXPECT_EQ(socket.congestion(), "reno");
  if (!socket.set_congestion("bbr")) GTEST_SKIP() << "this machine has no bbr to choose";
  EXPECT_TRUE(socket.paces_itself());
  socket.tune(PathClass::kLocal, false);
  EXPECT_TRUE(socket.paces_itself()) << "it was chosen";
  socket.tune(PathClass::kWan, true);
  EXPECT_TRUE(socket.paces_itself());
  socket.tune(PathClass::kLocal, true);
  EXPECT_FALSE(socket.paces_itself());
}

void carry(int from, int to, size_t bytes) {
  std::vector<char> piece(1 << 20);
  for (size_t left = bytes, held = 0; left + held > 0;) {
    const ssize_t sent = send(from, piece.data(), std::min(left, piece.size()), MSG_NOSIGNAL);
    if (sent > 0) left -= static_cast<size_t>(sent), held += static_cast<size_t>(sent);
    const ssize_t received = recv(to, piece.data(), piece.size(), 0);
    if (received > 0) held -= static_cast<size_t>(received);
  }
}

int send_buffer(int fd) {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &length), 0);
  return bytes;
}

TEST(Socket, HoldsAsMuchAsItIsTold) {
  const auto [client, server] = connected_fds();
  const Socket socket(client), other(server);
  socket.hold_at_most(64 << 10);
  EXPECT_EQ(send_buffer(client), 2 * 64 << 10);
  carry(client, server, 16 << 20);
  EXPECT_EQ(send_buffer(client), 2 * 64 << 10);
  socket.hold_at_most(0);
  carry(client, server, 16 << 20);
  if (send_buffer(client) == 2 * 64 << 10) GTEST_SKIP() << "older than Linux 5.14";
  EXPECT_GT(send_buffer(client), 2 * 64 << 10);
}

// Sends and receives 16 MiB, pauses for longer than a retransmission timeout, and sends a byte.
// Returns the window before and after.
std::pair<uint64_t, uint64_t> windows_around_silence(bool kept) {
  const auto [client, server] = connected_fds();
  const Socket socket(client);
  const Socket other(server);
  EXPECT_TRUE(socket.set_congestion("reno"));
  carry(client, server, 16 << 20);
  const uint64_t before = socket.path().window;
  EXPECT_FALSE(socket.would_begin_anew());
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // several timeouts
  const bool would = socket.would_begin_anew();
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t sent =
      kept ? socket.send_after_silence(message) : sendmsg(client, &message, MSG_NOSIGNAL);
  EXPECT_EQ(sent, 1);
  EXPECT_TRUE(kept || would == (socket.path().window < before));
  EXPECT_EQ(socket.congestion(), "reno");
  return {before, socket.path().window};
}

TEST(Socket, KeepsItsWindowThroughASilenceWhereItMay) {
  const auto [before, after] = windows_around_silence(false);
  if (after >= before) GTEST_SKIP() << "windows do not begin anew on this machine: " << before;
  const auto [client, server] = connected_fds();
  const Socket socket(client), other(server);
  const bool may = socket.set_congestion("bbr");
  const auto [kept_before, kept_after] = windows_around_silence(true);
  if (!may) GTEST_SKIP() << "this machine has no bbr to choose";
  EXPECT_EQ(kept_after, kept_before);
}

TEST(Socket, ReportsWhatWentWrongAfterASilence) {
  const auto [client, server] = connected_fds();
  const Socket socket(client);
  { const Socket other(server); }
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ASSERT_EQ(shutdown(client, SHUT_WR), 0);
  errno = 0;
  EXPECT_EQ(socket.send_after_silence(message), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST(Socket, ClosesOnceWhateverItIsMovedTo) {
  const auto [client, server] = connected_fds();
  {
    Socket socket(client);
    Socket moved = std::move(socket);
    EXPECT_EQ(socket.fd(), -1);
    Socket assigned(server);
    assigned = std::move(moved);
    EXPECT_EQ(fcntl(server, F_GETFD), -1);  // the socket that it held before is closed
    EXPECT_EQ(assigned.fd(), client);
  }
  EXPECT_EQ(fcntl(client, F_GETFD), -1);
}

TEST(Socket, AChildHoldsNoConnectionOpen) {
  const auto [client, server] = connected_fds();
  auto socket = std::make_unique<Socket>(client);
  std::promise<void> checked;
  int to_parent[2];
  ASSERT_EQ(pipe(to_parent), 0);
  const pid_t child = fork();
  if (child == 0) {
    ::close(server);
    // A descriptor of the child gets the number of the closed socket, unless libuv has taken this
    // number since the fork. The destructor must leave it alone.
    const bool used = fcntl(client, F_GETFD) >= 0 || fcntl(to_parent[1], F_DUPFD, client) == client;
    socket.reset();
    const char right = used && fcntl(client, F_GETFD) >= 0 ? 'y' : 'n';
    if (write(to_parent[1], &right, 1) != 1) _exit(1);
    pause();
  }
  char right = 0;
  ASSERT_EQ(read(to_parent[0], &right, 1), 1);
  EXPECT_EQ(right, 'y');
  socket.reset();  // the child still lives, and the other end still sees the end of the connection
  char byte;
  EXPECT_EQ(recv(server, &byte, 1, 0), 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (const int fd : {server, to_parent[0], to_parent[1]}) ::close(fd);
}

}  // namespace
}  // namespace pccl::net
