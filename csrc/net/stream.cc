// Normal operation: bytes that arrive are passed on. Bytes to send are queued, and written when the
// current callback is over. close_after_flush() writes the rest, shuts down its direction of the
// connection, and waits for the other side to do the same. (If a socket with unread input is
// closed, the system discards the bytes that are still in flight.) Failures:
//   - The other side closes or resets the connection, or does not read.
//   - A write fails: what has arrived before is still passed on.
#include "csrc/net/stream.h"

#include <sys/socket.h>

#include <cerrno>

#include "csrc/net/address.h"
#include "csrc/net/byte_queue.h"
#include "csrc/net/handle.h"

namespace pccl::net {
namespace {

// Bytes that are read and written before other handles of the loop have their turn.
constexpr size_t kTurnBytes = 1u << 20;

}  // namespace

struct Stream::Impl : Deferred, std::enable_shared_from_this<Impl> {
  void run_deferred() override;
  void ready(bool readable, bool writable);
  void read_some();
  void write_some();
  void write_failed(int error);
  void watch();
  void close(Status status);
  void stop();
  Status broken(const std::string& why) const { return {Code::kSystem, peer + ": " + why, {}}; }

  std::shared_ptr<Loop::Impl> loop;
  Callbacks callbacks;
  Socket socket;
  std::string peer;  // "10.0.0.7:48201", for messages
  std::shared_ptr<Watcher> watcher;
  std::shared_ptr<Alarm> alarm;  // for close_after_flush()

  ByteQueue queue;
  bool blocked = false;    // the system takes no more for now
  bool closing = false;    // close_after_flush() was called
  bool sent_last = false;  // everything was written, and the sending direction is shut down
  bool over = false;
  Status failure;  // the reason to close when no input is left
};

void Stream::Impl::run_deferred() {
  if (over) return;
  if (queue.size() > kQueueBytesMax) {
    return close(broken("it does not read: " + std::to_string(queue.size()) +
                        " bytes wait for it, at most " + std::to_string(kQueueBytesMax)));
  }
  if (!blocked) write_some();
}

void Stream::Impl::ready(bool readable, bool writable) {
  if (readable && !over) read_some();
  if (writable && !over) write_some();
  watch();
}

void Stream::Impl::read_some() {
  const std::span<std::byte> buffer = loop->read_buffer();
  for (size_t total = 0; total < kTurnBytes && !over;) {
    const ssize_t bytes = recv(socket.fd(), buffer.data(), buffer.size(), 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (bytes <= 0 && sent_last) return close({});
    if (bytes <= 0 && !failure.ok()) return close(failure);
    if (bytes < 0) return close(broken(error_text(errno)));
    if (bytes == 0) return close(broken("the other side closed the connection"));
    total += static_cast<size_t>(bytes);
    if (!closing) callbacks.on_bytes(buffer.first(static_cast<size_t>(bytes)));
    if (static_cast<size_t>(bytes) < buffer.size()) break;
  }
}

void Stream::Impl::write_some() {
  size_t total = 0;
  blocked = false;
  while (queue.size() > 0 && !blocked && failure.ok()) {
    const size_t part = std::min(queue.size(), kTurnBytes);
    const ssize_t bytes = ::send(socket.fd(), queue.bytes().data(), part, MSG_NOSIGNAL);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return write_failed(errno);
    const size_t taken = bytes < 0 ? 0 : static_cast<size_t>(bytes);
    queue.drop(taken);
    total += taken;
    blocked = taken < part || total >= kTurnBytes;
  }
  if (closing && queue.size() == 0 && !sent_last) {
    sent_last = true;
    shutdown(socket.fd(), SHUT_WR);
  }
  watch();
}

// The other side is gone, but its last bytes may still be unread. The stream closes when
// read_some() reaches the end of the connection.
void Stream::Impl::write_failed(int error) {
  failure = broken(error_text(error));
  queue.clear();
  blocked = false;
  watch();
}

void Stream::Impl::watch() { watcher->watch(true, queue.size() > 0); }

void Stream::Impl::close(Status status) {
  stop();
  if (closing && sent_last) status = {};
  callbacks.on_closed(std::move(status));
}

void Stream::Impl::stop() {
  over = true;
  watcher->close();
  if (alarm) alarm->close();
  socket = Socket();
}

Stream::Stream(Loop& loop, Socket socket, Callbacks callbacks) : impl_(std::make_shared<Impl>()) {
  loop.assert_on_loop();
  const std::shared_ptr<Impl>& impl = impl_;
  impl->loop = loop.impl();
  impl->callbacks = std::move(callbacks);
  impl->peer = text(Endpoint{socket.peer_host(), peer_address(socket.fd()).port()});
  impl->socket = std::move(socket);
  impl->watcher =
      Watcher::open(impl->loop, impl->socket.fd(),
                    [impl](bool readable, bool writable) { impl->ready(readable, writable); });
  impl->watch();
}

Stream::~Stream() {
  if (!impl_->over) impl_->stop();
}

void Stream::send(std::span<const std::byte> bytes) {
  impl_->loop->assert_on_loop();
  if (impl_->over || impl_->closing || !impl_->failure.ok()) return;
  if (impl_->queue.size() > kQueueBytesMax) return;  // about to be cut off
  impl_->queue.append(bytes);
  impl_->loop->defer(impl_);
}

void Stream::close_after_flush(Duration at_most) {
  impl_->loop->assert_on_loop();
  if (impl_->over || impl_->closing) return;
  impl_->closing = true;
  const auto late = [impl = impl_] {
    if (!impl->over) impl->close(impl->broken("it did not take what was sent last"));
  };
  impl_->alarm = Alarm::open(impl_->loop, late);
  impl_->alarm->arm(monotonic_now() + at_most);
  impl_->loop->defer(impl_);
}

size_t Stream::unsent() const { return impl_->queue.size(); }

const Socket& Stream::socket() const { return impl_->socket; }

}  // namespace pccl::net
