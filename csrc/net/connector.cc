// Connector. Normal operation: look up the name (a literal needs no lookup), connect to its first
// address, pass the socket to the callback. Failures:
//   - The name is unknown: this is reported.
//   - An address refuses, or does not answer within its share of the remaining time: the next
//     address is tried.
//   - No address is left, or the time is over: the last reason is reported.
#include <netinet/in.h>
#include <sys/socket.h>
#include <uv.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/handle.h"
#include "csrc/net/socket.h"

namespace pccl::net {

namespace {

LinkFault fault_of(int error_number) {
  switch (error_number) {
    case ECONNREFUSED: return LinkFault::kRefused;
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH: return LinkFault::kNoAnswer;
    default: return LinkFault::kOther;
  }
}

}  // namespace

struct Connector::Impl : Deferred, std::enable_shared_from_this<Impl> {
  Impl(Loop& owner, Endpoint endpoint, Duration timeout, Callback then, uint32_t limit)
      : loop(owner.impl()),
        to(std::move(endpoint)),
        time(timeout),
        deadline(monotonic_now() + timeout),
        callback(std::move(then)),
        segment(limit) {}

  void run_deferred() override;
  void resolve();
  void resolved(int uv_code, const addrinfo* list);
  void try_next();
  void ready();
  void late();
  void failed(const std::string& why);
  void unresolved(int uv_code);
  void note(int error_number);
  void finish(Result<Socket> result);
  void stop();
  void stop_attempt();

  const std::shared_ptr<Loop::Impl> loop;
  const Endpoint to;
  const Duration time;
  const Instant deadline;
  Callback callback;
  const uint32_t segment;
  bool over = false;

  struct Resolution;
  Resolution* resolution = nullptr;  // the lookup in progress; frees itself
  std::vector<Address> addresses;
  size_t tried = 0;
  std::string why = "the name has no address";
  LinkFault fault = LinkFault::kOther;
  Socket socket;  // of the current attempt
  std::shared_ptr<Watcher> watcher;
  std::shared_ptr<Alarm> alarm;
};

// A name lookup. It outlives the Connector if the resolver cannot be stopped.
struct Connector::Impl::Resolution {
  uv_getaddrinfo_t request{};
  std::shared_ptr<Loop::Impl> loop;
  std::weak_ptr<Impl> asker;

  static void on_resolved(uv_getaddrinfo_t* request, int uv_code, addrinfo* list) {
    const std::unique_ptr<Resolution> self(static_cast<Resolution*>(request->data));
    if (const std::shared_ptr<Impl> asker = self->asker.lock()) {
      asker->resolution = nullptr;
      // A lookup is no handle, and may end after all handles of the loop were closed.
      if (!asker->over && !self->loop->ending()) asker->resolved(uv_code, list);
    }
    uv_freeaddrinfo(list);
    self->loop->after_callback();
  }
};

void Connector::Impl::run_deferred() {
  if (over) return;
  alarm = Alarm::open(loop, [self = shared_from_this()] { self->late(); });
  alarm->arm(deadline);
  if (to.host.empty()) return failed("no host is given");
  addresses = literal_address(to.host, to.port);
  if (addresses.empty()) {
    resolve();
  } else {
    try_next();
  }
}

void Connector::Impl::resolve() {
  auto request = std::make_unique<Resolution>();
  request->loop = loop;
  request->asker = weak_from_this();
  request->request.data = request.get();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  const int error = uv_getaddrinfo(&loop->uv, &request->request, &Resolution::on_resolved,
                                   to.host.c_str(), nullptr, &hints);
  if (error != 0) return unresolved(error);
  resolution = request.release();
}

void Connector::Impl::resolved(int uv_code, const addrinfo* list) {
  if (uv_code != 0) return unresolved(uv_code);
  addresses = addresses_of(list, to.port);
  try_next();
}

// Starts to connect to the next address, or reports the failure if none is left.
void Connector::Impl::try_next() {
  while (tried < addresses.size()) {
    const Address& address = addresses[tried++];
    {
      const ForkGuard guard;
      socket = Socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    }
    if (!socket) {
      note(errno);
      continue;
    }
    if (segment > 0) socket.limit_segment(segment);
    if (connect(socket.fd(), address.raw(), address.length) == 0 || errno == EINPROGRESS) {
      watcher = Watcher::open(loop, socket.fd(),
                              [self = shared_from_this()](bool, bool) { self->ready(); });
      watcher->watch(false, true);
      const Instant now = monotonic_now();
      const auto turns = static_cast<int64_t>(addresses.size() - tried + 1);
      alarm->arm(now + std::max(Duration{0}, (deadline - now) / turns));
      return;
    }
    note(errno);
    socket = Socket();
  }
  failed(why);
}

void Connector::Impl::ready() {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  const Address& address = addresses[tried - 1];
  // If no process listens on a port of this machine, a connection to the port may reach itself.
  if (error == 0 && local_address(socket.fd()) == address) error = ECONNREFUSED;
  if (error == 0 && peer_address(socket.fd()).family() == AF_UNSPEC) error = ENOTCONN;
  if (error == 0) {
    Socket connected = std::move(socket);
    return finish(std::move(connected));
  }
  note(error);
  stop_attempt();
  try_next();
}

void Connector::Impl::note(int error_number) {
  why = error_text(error_number);
  fault = fault_of(error_number);
}

void Connector::Impl::unresolved(int uv_code) {
  fault = LinkFault::kUnknownName;
  failed(resolve_error_text(uv_code));
}

void Connector::Impl::late() {
  char text[64];
  std::snprintf(text, sizeof text, "no answer within %.3g s", to_seconds(time));
  why = text;
  fault = LinkFault::kNoAnswer;
  stop_attempt();
  if (monotonic_now() < deadline) return try_next();
  failed(why);
}

// If the endpoint is a name, the text also contains the last address that was tried.
void Connector::Impl::failed(const std::string& reason) {
  std::string whom = text(to);
  if (tried > 0 && addresses[tried - 1].host() != to.host) {
    whom += " (" + addresses[tried - 1].host() + ")";
  }
  finish(Status{Code::kSystem, "connect to " + whom + ": " + reason, {}});
}

void Connector::Impl::finish(Result<Socket> result) {
  stop();
  const Callback then = std::move(callback);
  then(std::move(result));
}

void Connector::Impl::stop() {
  over = true;
  stop_attempt();
  if (alarm) alarm->close();
  if (resolution != nullptr && loop->on_loop()) {
    uv_cancel(reinterpret_cast<uv_req_t*>(&resolution->request));
  }
}

void Connector::Impl::stop_attempt() {
  if (watcher) watcher->close();
  watcher = nullptr;
  socket = Socket();
}

Connector::Connector(Loop& loop, Endpoint to, Duration timeout, Callback callback, uint32_t segment)
    : impl_(std::make_shared<Impl>(loop, std::move(to), timeout, std::move(callback), segment)) {
  loop.assert_on_loop();
  loop.impl()->defer(impl_);
}

LinkFault Connector::fault() const { return impl_->fault; }

Connector::~Connector() {
  if (!impl_->over) impl_->stop();
}

}  // namespace pccl::net
