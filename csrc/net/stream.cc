// Normal operation: bytes that arrive are passed on. Bytes to send are queued, and written when the
// current callback is over. close_after_flush() writes the rest, shuts down its direction of the
// connection, and waits for the other side to do the same. (If a socket with unread input is
// closed, the system discards the bytes that are still in flight.) Failures:
//   - The other side closes or resets the connection, or does not read.
//   - A write fails: bytes that have already arrived are still passed on.
//   - The TLS handshake fails or takes too long, or a record is damaged.
#include "csrc/net/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "csrc/net/address.h"
#include "csrc/net/byte_queue.h"
#include "csrc/net/handle.h"

namespace pccl::net {
namespace {

// The number of bytes that are read and written before other handles of the loop have their turn.
constexpr size_t kTurnBytes = 1u << 20;

}  // namespace

struct Stream::Impl : Deferred, std::enable_shared_from_this<Impl> {
  explicit Impl(Channel of) : channel(std::move(of)), announced(channel.established()) {}

  void run_deferred() override;
  void ready(bool readable, bool writable);
  void read_some();
  void write_some();
  void ended(const Status& why);
  void write_failed(const Status& why);
  void finish();
  void note_established();
  void watch();
  void close(Status status);
  void stop();
  Status broken(const std::string& why) const { return {Code::kSystem, peer + ": " + why, {}}; }

  std::shared_ptr<Loop::Impl> loop;
  Callbacks callbacks;
  Channel channel;
  std::string peer;  // "10.0.0.7:48201", for messages
  std::shared_ptr<Watcher> watcher;
  std::shared_ptr<Alarm> alarm;  // for the TLS handshake, then for close_after_flush()

  ByteQueue queue;
  bool proven_announced = false;
  bool announced;          // on_established was called, or will not be called
  bool blocked = false;    // the system takes no more for now
  bool closing = false;    // close_after_flush() was called
  bool said_last = false;  // channel.close() was called
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
  const std::span<std::byte> space = loop->read_buffer().first(Loop::Impl::kReadBufferBytes);
  for (size_t total = 0; (total < kTurnBytes || channel.holds_input()) && !over;) {
    const Channel::Received received = channel.receive(space);
    note_established();
    if (over) return;
    if (!received.end.ok()) return ended(received.end);
    total += received.wire;
    if (!closing && !received.bytes.empty()) callbacks.on_bytes(received.bytes);
    if (received.dry) break;
  }
  // The handshake may have produced bytes to send, or allows queued bytes to leave.
  if (!over && channel.encrypted()) loop->defer(shared_from_this());
}

// Call it when no more input comes.
void Stream::Impl::ended(const Status& why) {
  if (sent_last) return close({});
  if (!failure.ok()) return close(failure);
  close({why.code, peer + ": " + why.message, {}});
}

void Stream::Impl::note_established() {
  if (announced || over || !channel.proven()) return;
  const bool first = !std::exchange(proven_announced, true);
  if (first && !closing && callbacks.on_proven) callbacks.on_proven();
  if (over || !channel.established()) return;
  announced = true;
  if (!closing) alarm->disarm();
  if (!closing && callbacks.on_established) callbacks.on_established();
}

void Stream::Impl::write_some() {
  size_t total = 0;
  blocked = false;
  while (!blocked && failure.ok()) {
    const Channel::Bytes part = queue.bytes().first(std::min(queue.size(), kTurnBytes));
    auto prepared = channel.prepare(std::span(&part, part.empty() ? 0 : 1));
    if (!prepared.ok()) {
      // The shutdown lets read_some() reach the end of the stream.
      shutdown(channel.socket().fd(), SHUT_RDWR);
      return write_failed(prepared.status());
    }
    if (prepared.value().empty()) break;
    const Channel::Bytes bytes = prepared.value().front();
    ssize_t sent = 0;
    do {
      sent = ::send(channel.socket().fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
      return write_failed({Code::kSystem, error_text(errno), {}});
    const size_t taken = sent < 0 ? 0 : static_cast<size_t>(sent);
    queue.drop(channel.sent(taken));
    total += taken;
    blocked = taken < bytes.size() || total >= kTurnBytes;
  }
  if (closing && queue.size() == 0 && !blocked && failure.ok()) finish();
  watch();
}

// Everything was written, except perhaps the last record of TLS.
void Stream::Impl::finish() {
  if (sent_last) return;
  if (!std::exchange(said_last, true)) channel.close();
  if (channel.owes()) return write_some();
  sent_last = true;
  shutdown(channel.socket().fd(), SHUT_WR);
}

// The other side is gone, but its last bytes may still be unread. The stream closes when
// read_some() reaches the end of the connection.
void Stream::Impl::write_failed(const Status& why) {
  failure = {why.code, peer + ": " + why.message, {}};
  queue.clear();
  blocked = false;
  watch();
}

void Stream::Impl::watch() { watcher->watch(true, blocked); }

void Stream::Impl::close(Status status) {
  stop();
  if (closing && sent_last) status = {};
  callbacks.on_closed(std::move(status));
}

void Stream::Impl::stop() {
  over = true;
  watcher->close();
  if (alarm) alarm->close();
  channel.drop_socket();
}

Stream::Stream(Loop& loop, Channel channel, Callbacks callbacks)
    : impl_(std::make_shared<Impl>(std::move(channel))) {
  loop.assert_on_loop();
  const std::shared_ptr<Impl>& impl = impl_;
  const Socket& socket = impl->channel.socket();
  impl->loop = loop.impl();
  impl->callbacks = std::move(callbacks);
  impl->peer = text(Endpoint{socket.peer_host(), peer_address(socket.fd()).port()});
  impl->watcher = Watcher::open(impl->loop, socket.fd(), [impl](bool readable, bool writable) {
    impl->ready(readable, writable);
  });
  impl->watch();
  if (impl->announced) return;
  const auto late = [impl] {
    if (!impl->over) impl->close(impl->broken("the TLS handshake took too long"));
  };
  impl->alarm = Alarm::open(impl->loop, late);
  impl->alarm->arm(impl->channel.handshake_by());
  impl->loop->defer(impl);
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
  if (impl_->alarm) impl_->alarm->close();
  impl_->alarm = Alarm::open(impl_->loop, late);
  impl_->alarm->arm(monotonic_now() + at_most);
  impl_->loop->defer(impl_);
}

size_t Stream::unsent() const {
  impl_->loop->assert_on_loop();
  return impl_->queue.size() + impl_->channel.unsent();
}
const Socket& Stream::socket() const {
  impl_->loop->assert_on_loop();
  PCCL_ASSERT(!impl_->over);
  return impl_->channel.socket();
}
const std::string& Stream::identity() const { return impl_->channel.identity(); }
Tls::Refusal Stream::refusal() const {
  return impl_->channel.encrypted() ? impl_->channel.refusal() : Tls::Refusal::kOther;
}

}  // namespace pccl::net
