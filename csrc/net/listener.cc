// Listener. The happy path: bind, listen (unless the socket does already), accept what comes, hand
// each connection over. What can go wrong: the address is taken or is not ours (open() says so); a
// connection is gone before it is accepted (nobody hears of it); there is no descriptor or memory
// left for one more (waits a little, says so once, and goes on).
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "csrc/base/log.h"
#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/handle.h"
#include "csrc/net/socket.h"

namespace pccl::net {
namespace {

// Connections accepted before other handles of the loop have their turn: a few of those that may be
// strangers, so that none is pushed out before the first thing it said is read.
constexpr size_t kAcceptedPerTurnMax = 16;
// Without a descriptor for it a connection stays in the queue, and the socket readable: look again
// only then.
constexpr Duration kBackOff = std::chrono::milliseconds(100);
// A name with several addresses wants one free port on all of them: a few tries find one.
constexpr int kPortTriesMax = 8;

// The error number, 0 if `socket` listens on `address`.
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

// Listens on all of `addresses` under one port; the error number and whose it is.
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
    const bool absent = error == EADDRNOTAVAIL || error == EAFNOSUPPORT;  // IPv6 is off
    if (error != 0 && (failure.error == 0 || !absent)) failure = {error, address};
    if (error != 0 && !absent) sockets.clear();
    if (error != 0 && !absent) return failure;
  }
  return sockets.empty() ? failure : Failure{};
}

// Where to listen: every element of the result is an alternative, to be tried in turn.
Result<std::vector<std::vector<Address>>> alternatives(const Endpoint& at) {
  if (at.host.empty()) {
    return std::vector{literal_address("::", at.port), literal_address("0.0.0.0", at.port)};
  }
  if (at.host == kLoopback) {
    std::vector<Address> both = literal_address("127.0.0.1", at.port);
    both.push_back(literal_address("::1", at.port)[0]);
    return std::vector<std::vector<Address>>{both};
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
  return refusal(at, error_text(failure.error));
}

}  // namespace

struct Listener::Inside : std::enable_shared_from_this<Inside> {
  uint16_t port() const { return local_address(sockets[0].fd()).port(); }
  void watch(bool readable) {
    for (const std::shared_ptr<Watcher>& watcher : watchers) watcher->watch(readable, false);
  }
  void accept_some(int fd);
  void back_off(int error);
  void stop();

  std::shared_ptr<Loop::Inside> loop;
  Callback callback;
  std::vector<Socket> sockets;
  std::vector<std::shared_ptr<Watcher>> watchers;
  std::shared_ptr<Alarm> alarm;
  bool short_of_descriptors = false;
  bool over = false;
};

void Listener::Inside::accept_some(int fd) {
  const size_t most = std::max<size_t>(strangers_max(4 * kAcceptedPerTurnMax) / 4, 1);
  for (size_t i = 0; i < most && !over; ++i) {
    Socket socket;
    int error = 0;
    {
      const ForkGuard guard;
      socket = Socket(accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      error = errno;
    }
    if (socket) {
      short_of_descriptors = false;
      callback(std::move(socket));
      continue;
    }
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    // Whatever was wrong with one connection (accept() also reports errors of the network) is over
    // with it.
    const bool exhausted =
        error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    if (exhausted) return back_off(error);
  }
}

void Listener::Inside::back_off(int error) {
  if (!short_of_descriptors) {
    const std::string where = port() == 0 ? "a local socket" : "port " + std::to_string(port());
    log(LogLevel::kWarning, "cannot accept a connection on " + where + ": " + error_text(error) +
                                "; it waits until there is room");
  }
  short_of_descriptors = true;
  watch(false);
  alarm->arm(monotonic_now() + kBackOff);
}

void Listener::Inside::stop() {
  over = true;
  for (const std::shared_ptr<Watcher>& watcher : watchers) watcher->close();
  alarm->close();
  sockets.clear();
}

Result<std::unique_ptr<Listener>> Listener::open(Loop& loop, const Endpoint& at,
                                                 Callback callback) {
  loop.assert_on_loop();
  Result<std::vector<Socket>> sockets = listening_sockets(at);
  if (!sockets.ok()) return sockets.status();
  return std::unique_ptr<Listener>(
      new Listener(loop, std::move(sockets.value()), std::move(callback)));
}

Listener::Listener(Loop& loop, std::vector<Socket> listening, Callback callback)
    : inside_(std::make_shared<Inside>()) {
  loop.assert_on_loop();
  const std::shared_ptr<Inside>& inside = inside_;
  inside->loop = loop.inside();
  inside->callback = std::move(callback);
  inside->sockets = std::move(listening);
  for (const Socket& socket : inside->sockets) {
    const auto accept = [inside, fd = socket.fd()](bool, bool) { inside->accept_some(fd); };
    inside->watchers.push_back(Watcher::open(inside->loop, socket.fd(), accept));
  }
  inside->alarm = Alarm::open(inside->loop, [inside] { inside->watch(true); });
  inside->watch(true);
}

Listener::Listener(Loop& loop, Socket listening, Callback callback)
    : Listener(loop, one_of(std::move(listening)), std::move(callback)) {}

Listener::~Listener() { inside_->stop(); }
void Listener::limit_segment(uint32_t bytes) {
  for (const Socket& socket : inside_->sockets) socket.limit_segment(bytes);
}
uint16_t Listener::port() const { return inside_->port(); }

}  // namespace pccl::net
