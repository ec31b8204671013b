// Normal operation: the reader names the memory for the next bytes, and they are received directly
// into it. The writer names the next bytes, and they are sent from where they lie, until the socket
// takes no more. If a received piece causes a send, the bytes are sent before more is read, while
// they are in the cache. Failures:
//   - The other side closes or resets the connection, or a frame is bad.
//   - A write fails: bytes that have already arrived are still read.
//   - The TLS handshake fails or takes too long, or a record is damaged.
// An encrypted lane receives into a buffer of the loop, and copies each verified record to the
// memory that the reader names. It encrypts bytes from where they lie, and only when all earlier
// ciphertext has left.
#include "csrc/net/lane.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "csrc/base/assert.h"
#include "csrc/net/address.h"
#include "csrc/net/handle.h"
#include "csrc/net/kept_window.h"
#include "csrc/protocol/limits.h"

namespace pccl::net {
namespace {

// The largest number of bytes of one receive call. With it, the calls are few, and the bytes are
// still in the cache when they are reduced.
constexpr size_t kReceiveBytesMax = 1u << 20;
// While at least twice this number of bytes is certain to come, the loop is woken only when this
// number has arrived. To wait for smaller chunks in this way gains nothing, because several lanes
// and both directions have such chunks at the same time.
constexpr size_t kAwaitedBytes = 256u << 10;
// A part of a record may be inside TLS already, so the socket may get fewer bytes than are certain
// to come. It still gets at least kAwaitedBytes.
static_assert(Tls::kRecordBytesMax <= kAwaitedBytes);
// `kBusyPoll`: the time of busy polling for the next piece of a large chunk, before the thread
// sleeps. `kBusyPollBytesMin`: a receive call with less room than this, in bytes, causes no busy
// polling.
constexpr Duration kBusyPoll = std::chrono::microseconds(500);
constexpr size_t kBusyPollBytesMin = 128u << 10;

}  // namespace

struct Lane::Impl : Deferred, std::enable_shared_from_this<Impl> {
  Impl(Channel of, FrameSink& sink)
      : channel(std::move(of)),
        reader(sink, true),
        writer(true),
        announced(channel.established()) {}

  void run_deferred() override;
  void ready(bool readable, bool writable);
  void read_some();
  void receive_until_dry();
  void await(size_t bytes);
  void write_some();
  bool write_once(size_t& budget);
  ssize_t send_now(const msghdr& message, size_t bytes);
  void note_established();
  void note_large(size_t bytes);
  std::optional<Progress> find_progress();
  void fail(Status status);
  void stop();
  void wake();
  void watch() { watcher->watch(true, blocked); }
  Status broken(const std::string& why) const { return {Code::kSystem, peer + ": " + why, {}}; }

  std::shared_ptr<Loop::Impl> loop;
  Callbacks callbacks;
  Channel channel;
  std::string peer;  // "10.0.0.7:48201", for messages
  std::shared_ptr<Watcher> watcher;
  std::shared_ptr<Alarm> alarm;         // for the TLS handshake
  std::shared_ptr<BusyPoll> busy_poll;  // of a local lane
  FrameReader reader;
  FrameWriter writer;
  bool proven_announced = false;
  bool announced;  // on_established was called, or will not be called
  size_t awaited = 1;
  uint64_t received_before = 0;  // number of bytes at the last take_received()
  std::optional<KeptWindow> kept_window;
  // Offsets in the stream of sent bytes. `before_large`: the number of bytes sent before the first
  // call that sent more than a small packet. `before_full`: the number of bytes sent before the
  // first call that sent a full packet. A large or full packet begins at this offset: with NODELAY,
  // earlier bytes do not wait to share a packet with later ones.
  std::optional<uint64_t> before_large, before_full;
  std::optional<Progress> arrived;  // set once a full packet has arrived
  bool blocked = false;             // waiting until the socket is writable
  bool writing = false;
  bool dead = false;
  Status failure;  // why nothing can be written any more
};

void Lane::Impl::run_deferred() {
  if (dead) return;
  if (writer.queued_bytes() > kQueueBytesMax) {
    return fail(broken("it does not read: " + std::to_string(writer.queued_bytes()) +
                       " bytes wait for it, at most " + std::to_string(kQueueBytesMax)));
  }
  if (!blocked) write_some();
}

void Lane::Impl::ready(bool readable, bool writable) {
  if (writable && !dead) write_some();
  if (readable && !dead) read_some();
  watch();
}

void Lane::Impl::read_some() {
  receive_until_dry();
  if (!dead) await(reader.certain() >= 2 * kAwaitedBytes ? kAwaitedBytes : 1);
}

// Makes the socket readable only when `bytes` bytes have arrived. REQUIRES: this number of bytes is
// certain to come; otherwise the loop would wait for ever.
void Lane::Impl::await(size_t bytes) {
  if (bytes == std::exchange(awaited, bytes)) return;
  const int value = static_cast<int>(bytes);
  setsockopt(channel.socket().fd(), SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value);
}

void Lane::Impl::receive_until_dry() {
  for (size_t budget = kTurnBytes; (budget > 0 || channel.holds_input()) && !dead;) {
    std::span<std::byte> space = reader.space();
    const size_t room = space.size();
    space = channel.encrypted() ? loop->read_buffer()
                                : space.first(std::min({room, kReceiveBytesMax, budget}));
    const Channel::Received received = channel.receive(space);
    note_established();
    if (dead) return;
    if (!received.end.ok()) {
      return fail(failure.ok() ? Status{received.end.code, peer + ": " + received.end.message, {}}
                               : failure);
    }
    budget -= std::min(budget, received.wire);
    if (!received.bytes.empty()) {
      if (busy_poll && room >= kBusyPollBytesMin) busy_poll->keep(kBusyPoll);
      Status status =
          channel.encrypted() ? reader.take(received.bytes) : reader.filled(received.bytes.size());
      if (dead) return;
      if (!status.ok()) return fail({status.code, peer + ": " + status.message, {}});
    }
    if (channel.holds_input()) continue;
    reader.report();
    if (dead) return;
    loop->run_deferred();
    if (received.dry) break;
  }
  // The handshake may have produced bytes to send, or allows queued bytes to leave.
  if (channel.encrypted()) wake();
}

void Lane::Impl::note_established() {
  if (announced || dead || !channel.proven()) return;
  if (!std::exchange(proven_announced, true) && callbacks.on_proven) callbacks.on_proven();
  if (dead || !channel.established()) return;
  announced = true;
  alarm->close();
  if (callbacks.on_established) callbacks.on_established();
}

void Lane::Impl::write_some() {
  writing = true;
  for (size_t budget = kTurnBytes; write_once(budget);) {
  }
  writing = false;
  watch();
}

// Writes as much as one system call takes. False if nothing is left to write, or nothing more can
// be written for now.
bool Lane::Impl::write_once(size_t& budget) {
  if (dead || !failure.ok()) return false;
  const auto plaintext = writer.gather();
  blocked = budget == 0 && (!plaintext.empty() || channel.owes());
  if (budget == 0) return false;
  auto prepared = channel.prepare(plaintext);
  if (!prepared.ok()) {
    failure = {prepared.status().code, peer + ": " + prepared.status().message, {}};
    // The shutdown lets read_some() reach the end of the stream.
    shutdown(channel.socket().fd(), SHUT_RDWR);
    return false;
  }
  std::array<iovec, 4> parts;
  size_t count = 0;
  size_t wanted = 0;
  for (const Channel::Bytes& span : prepared.value()) {
    parts[count++] = {const_cast<std::byte*>(span.data()), span.size()};
    wanted += span.size();
  }
  if (wanted == 0) return false;
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t sent = send_now(message, wanted);
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    failure = broken(error_text(errno));  // read_some() reports it when no input is left
    return false;
  }
  const size_t bytes = sent < 0 ? 0 : static_cast<size_t>(sent);
  if (!before_full && bytes > protocol::kSmallPacketBytes) note_large(bytes);
  const bool was_pending = writer.chunk_pending();
  writer.wrote(channel.sent(bytes));
  blocked = bytes < wanted;
  budget -= std::min(budget, bytes);
  if (was_pending && !writer.chunk_pending()) callbacks.on_sent();
  return !blocked;
}

ssize_t Lane::Impl::send_now(const msghdr& message, size_t bytes) {
  const Socket& socket = channel.socket();
  bool keep = false;
  if (kept_window) {
    // The writer may have given away all bytes of an encrypted chunk while the last of them still
    // wait here.
    const bool ciphertext = channel.encrypted() && bytes > protocol::kSmallPacketBytes;
    const bool of_chunk = writer.chunk_pending() || ciphertext;
    const auto how = kept_window->sends(monotonic_now(), of_chunk, channel.counters().bytes_sent);
    // On loopback, where the minimum RTT is a microsecond, the pace may be above kPaceAny.
    if (how.pace)
      socket.pace(*how.pace == 0 ? Socket::kPaceAny : std::min(*how.pace, Socket::kPaceAny - 1));
    keep = how.keep;
  }
  ssize_t sent = 0;
  do {
    sent = keep ? socket.send_after_silence(message) : sendmsg(socket.fd(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

void Lane::Impl::note_large(size_t bytes) {
  if (!before_large) before_large = channel.counters().bytes_sent;
  if (bytes >= channel.socket().segment()) before_full = channel.counters().bytes_sent;
}

// A byte has arrived if the other end has acknowledged it and all bytes before it.
std::optional<Lane::Progress> Lane::Impl::find_progress() {
  if (arrived || dead || !before_large) return arrived;
  const uint64_t acknowledged = channel.counters().bytes_sent - channel.socket().bytes_queued();
  const Progress found{channel.socket().segment(), before_full && acknowledged > *before_full};
  if (found.arrived) arrived = found;
  const bool stuck = acknowledged <= before_full.value_or(*before_large);
  return found.arrived || stuck ? std::optional(found) : std::nullopt;
}

void Lane::Impl::fail(Status status) {
  stop();
  callbacks.on_failed(std::move(status));
}

void Lane::Impl::stop() {
  dead = true;
  writer.withdraw();
  reader.detach();
  watcher->close();
  if (busy_poll) busy_poll->close();
  if (alarm) alarm->close();
  channel.drop_socket();
}

void Lane::Impl::wake() {
  if (!dead && !writing) loop->defer(shared_from_this());
}

Lane::Lane(Loop& loop, Channel channel, FrameSink& sink, Callbacks callbacks)
    : impl_(std::make_shared<Impl>(std::move(channel), sink)) {
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
  impl->channel.share_work(impl->loop->helpers());
  if (impl->announced) return;
  const auto late = [impl] {
    if (!impl->dead) impl->fail(impl->broken("the TLS handshake took too long"));
  };
  impl->alarm = Alarm::open(impl->loop, late);
  impl->alarm->arm(impl->channel.handshake_by());
  impl->wake();
}

Lane::~Lane() {
  if (!impl_->dead) impl_->stop();
}

void Lane::set_local(bool local) {
  impl_->loop->assert_on_loop();
  if (impl_->dead) return;
  const bool checked = !local && !impl_->channel.encrypted();  // TLS authenticates each record
  impl_->reader.set_checked(checked);
  impl_->writer.set_checked(checked);
  if (!local && impl_->busy_poll) impl_->busy_poll->close();
  impl_->busy_poll = local ? BusyPoll::open(impl_->loop) : nullptr;
}

void Lane::set_alone(bool alone) {
  impl_->loop->assert_on_loop();
  if (impl_->dead || !impl_->busy_poll) return;
  const int fd = impl_->channel.socket().fd();
  impl_->busy_poll->set_may_migrate(alone && local_address(fd).port() > peer_address(fd).port());
}

bool Lane::tune(PathClass path, const std::string& congestion) {
  impl_->loop->assert_on_loop();
  if (impl_->dead) return true;
  const bool accepted = congestion.empty() || socket().set_congestion(congestion);
  socket().tune(path, congestion.empty());
  if (path == PathClass::kWan && congestion.empty()) keep_window();
  return accepted;
}

void Lane::keep_window() {
  impl_->loop->assert_on_loop();
  if (impl_->dead || impl_->channel.socket().paces_itself()) return;
  Impl* const impl = impl_.get();
  KeptWindow::Source source{
      .restarts = [impl] { return impl->channel.socket().would_begin_anew(); },
      .path = [impl] { return impl->channel.socket().path(); }};
  impl->kept_window.emplace(std::move(source), monotonic_now());
}

void Lane::send(const FrameHeader& header) {
  impl_->loop->assert_on_loop();
  if (impl_->dead) return;
  impl_->writer.push(header);
  impl_->wake();
}

void Lane::send_copy(const FrameHeader& header, std::span<const std::byte> payload) {
  impl_->loop->assert_on_loop();
  if (impl_->dead) return;
  impl_->writer.push_copy(header, payload);
  impl_->wake();
}

void Lane::send_chunk(const FrameHeader& header, std::span<const std::byte> payload) {
  impl_->loop->assert_on_loop();
  if (impl_->dead) return;
  impl_->writer.push_chunk(header, payload);
  impl_->wake();
}

void Lane::withdraw() {
  impl_->loop->assert_on_loop();
  if (impl_->dead) return;
  impl_->writer.withdraw();
  impl_->wake();
}

void Lane::revoke() {
  impl_->loop->assert_on_loop();
  impl_->reader.revoke();
}

bool Lane::idle() const {
  impl_->loop->assert_on_loop();
  return !impl_->writer.chunk_pending();
}
const Lane::Counters& Lane::counters() const {
  impl_->loop->assert_on_loop();
  return impl_->channel.counters();
}
std::optional<Lane::Progress> Lane::progress() const {
  impl_->loop->assert_on_loop();
  return impl_->find_progress();
}
bool Lane::take_received() {
  const uint64_t all = counters().bytes_received;
  return std::exchange(impl_->received_before, all) != all;
}
const Socket& Lane::socket() const {
  impl_->loop->assert_on_loop();
  PCCL_ASSERT(!impl_->dead);
  return impl_->channel.socket();
}
const std::string& Lane::identity() const { return impl_->channel.identity(); }

}  // namespace pccl::net
