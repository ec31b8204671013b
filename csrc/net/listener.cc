// Listener. Normal operation: bind, listen (unless the socket already listens), accept connections,
// pass each of them to the callback. Failures:
//   - The address is taken or does not belong to this machine: open() returns the error.
//   - A connection ends before it is accepted: it is ignored.
//   - No descriptor or memory is left for another connection: the listener warns once, waits a
//     little and continues.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/handle.h"
#include "csrc/net/socket.h"

namespace pccl::net {
namespace {

// The largest number of connections that are accepted before other handles of the loop have their
// turn. It is a small part of the pending connections that are allowed, so that none is evicted
// before its first frame is read.
constexpr size_t kAcceptedPerTurnMax = 16;
// If no descriptor is left for a connection, the listener does not watch the socket for this time.
// The connection stays in the queue of the system, so the socket would be readable all the time.
constexpr Duration kBackOff = std::chrono::milliseconds(100);
// The largest number of tries to find one port that is free on all addresses of a name.
constexpr int kPortTriesMax = 8;

// Opens `socket` and makes it listen on `address`. Returns the error number, or 0.
int listen_on(const Address& address, Socket& socket) {
  {
    const ForkGuard guard;
    socket = Socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  if (!socket) return errno;
  const int on = 1;
  const int off = 0;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool any = address.host() == "::";
  if (address.family() == AF_INET6) {
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, any ? &off : &on, sizeof on);
  }
  if (bind(socket.fd(), address.raw(), address.length) != 0) return errno;
  return listen(socket.fd(), SOMAXCONN) == 0 ? 0 : errno;
}

// Listens on all of `addresses` with one port. Addresses that this machine lacks are skipped if
// another one works. Returns the error number of a failure and the address that failed; error 0:
// success.
struct Failure {
  int error = 0;
  Address address;
};
Failure listen_on_all(std::vector<Address> addresses, std::vector<Socket>& sockets) {
  Failure failure;
  for (Address& address : addresses) {
    if (!sockets.empty()) address.set_port(local_address(sockets[0].fd()).port());
    Socket socket;
    const int error = listen_on(address, socket);
    if (error == 0) sockets.push_back(std::move(socket));
    const bool absent = error == EADDRNOTAVAIL || error == EAFNOSUPPORT;  // as with IPv6 off
    if (error != 0 && (failure.error == 0 || !absent)) failure = {error, address};
    if (error != 0 && !absent) sockets.clear();
    if (error != 0 && !absent) return failure;
  }
  return sockets.empty() ? failure : Failure{};
}

// The addresses to listen on. Each element of the result is one alternative; try them in order.
Result<std::vector<std::vector<Address>>> alternatives(const Endpoint& at) {
  if (at.host.empty()) {
    return std::vector{literal_address("::", at.port), literal_address("0.0.0.0", at.port)};
  }
  Result<std::vector<Address>> addresses = resolve_now(at.host, at.port);
  if (!addresses.ok()) return addresses.status();
  return std::vector<std::vector<Address>>{std::move(addresses.value())};
}

Status refusal(const Endpoint& at, const std::string& why) {
  const Endpoint shown{at.host.empty() ? "*" : at.host, at.port};
  return {Code::kSystem, "cannot listen on " + text(shown) + ": " + why, {}};
}

std::vector<Socket> one_of(Socket socket) {
  std::vector<Socket> sockets;
  sockets.push_back(std::move(socket));
  return sockets;
}

Result<std::vector<Socket>> listening_sockets(const Endpoint& at) {
  Result<std::vector<std::vector<Address>>> choices = alternatives(at);
  if (!choices.ok()) return refusal(at, choices.status().message);
  Failure failure;
  for (const std::vector<Address>& addresses : choices.value()) {
    for (int tries = 0; tries < kPortTriesMax; ++tries) {
      std::vector<Socket> sockets;
      failure = listen_on_all(addresses, sockets);
      if (failure.error == 0) return sockets;
      if (failure.error != EADDRINUSE || at.port != 0) break;
    }
    if (failure.error == EADDRINUSE || failure.error == EACCES) break;
  }
  const char* const hint = failure.error == EADDRINUSE
                               ? ", another process listens there: end it, or take another port"
                               : "";
  return refusal(at, error_text(failure.error) + hint);
}

}  // namespace

struct Listener::Impl : std::enable_shared_from_this<Impl> {
  uint16_t port() const { return local_address(sockets[0].fd()).port(); }
  void watch(bool readable) {
    for (const std::shared_ptr<Watcher>& watcher : watchers) watcher->watch(readable, false);
  }
  void accept_some(int fd);
  void back_off(int error);
  std::string where() const {
    return port() == 0 ? "a local socket" : "port " + std::to_string(port());
  }
  void stop();

  std::shared_ptr<Loop::Impl> loop;
  Callback callback;
  Warn warn;
  std::vector<Socket> sockets;
  std::vector<std::shared_ptr<Watcher>> watchers;
  std::shared_ptr<Alarm> alarm;
  bool short_of_descriptors = false;
  bool over = false;
};

void Listener::Impl::accept_some(int fd) {
  const size_t most = std::max<size_t>(pending_max(4 * kAcceptedPerTurnMax) / 4, 1);
  for (size_t i = 0; i < most && !over; ++i) {
    Socket socket;
    int error = 0;
    {
      const ForkGuard guard;
      socket = Socket(accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      error = errno;
    }
    if (socket) {
      if (std::exchange(short_of_descriptors, false))
        warn("accepts connections on " + where() + " again");
      callback(std::move(socket));
      continue;
    }
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    // Any other error concerns only the connection that failed: accept() also reports network
    // errors.
    const bool exhausted =
        error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    if (exhausted) return back_off(error);
  }
}

void Listener::Impl::back_off(int error) {
  if (!short_of_descriptors) {
    warn("cannot accept a connection on " + where() + ": " + error_text(error) +
         "; it waits until there is room");
  }
  short_of_descriptors = true;
  watch(false);
  alarm->arm(monotonic_now() + kBackOff);
}

void Listener::Impl::stop() {
  over = true;
  for (const std::shared_ptr<Watcher>& watcher : watchers) watcher->close();
  alarm->close();
  sockets.clear();
}

Result<std::unique_ptr<Listener>> Listener::open(Loop& loop, const Endpoint& at, Callback callback,
                                                 Warn warn) {
  loop.assert_on_loop();
  Result<std::vector<Socket>> sockets = listening_sockets(at);
  if (!sockets.ok()) return sockets.status();
  return std::unique_ptr<Listener>(
      new Listener(loop, std::move(sockets.value()), std::move(callback), std::move(warn)));
}

Listener::Listener(Loop& loop, std::vector<Socket> listening, Callback callback, Warn warn)
    : impl_(std::make_shared<Impl>()) {
  loop.assert_on_loop();
  const std::shared_ptr<Impl>& impl = impl_;
  impl->loop = loop.impl();
  impl->callback = std::move(callback);
  impl->warn = std::move(warn);
  impl->sockets = std::move(listening);
  for (const Socket& socket : impl->sockets) {
    const auto accept = [impl, fd = socket.fd()](bool, bool) { impl->accept_some(fd); };
    impl->watchers.push_back(Watcher::open(impl->loop, socket.fd(), accept));
  }
  impl->alarm = Alarm::open(impl->loop, [impl] { impl->watch(true); });
  impl->watch(true);
}

Listener::Listener(Loop& loop, Socket listening, Callback callback, Warn warn)
    : Listener(loop, one_of(std::move(listening)), std::move(callback), std::move(warn)) {}

Listener::~Listener() { impl_->stop(); }
void Listener::limit_segment(uint32_t bytes) {
  impl_->loop->assert_on_loop();
  for (const Socket& socket : impl_->sockets) socket.limit_segment(bytes);
}
uint16_t Listener::port() const { return impl_->port(); }

}  // namespace pccl::net
