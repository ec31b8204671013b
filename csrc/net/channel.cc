#include "csrc/net/channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/net/address.h"

namespace pccl::net {
namespace {

Status closed() { return {Code::kSystem, "the other side closed the connection", {}}; }

}  // namespace

Channel::Channel(Socket socket, Tls tls, Instant by)
    : socket_(std::move(socket)), tls_(std::move(tls)), by_(by) {}

const std::string& Channel::identity() const {
  static const std::string none;
  return tls_ ? tls_->identity() : none;
}

// ---- Receiving ----

// Makes one system call. If nothing has arrived, the result has no bytes and `dry` is true. At the
// end of the stream, the result has no bytes and `dry` is false.
Channel::Received Channel::receive_once(std::span<std::byte> space) {
  ssize_t received = 0;
  do {
    received = recv(socket_.fd(), space.data(), space.size(), 0);
  } while (received < 0 && errno == EINTR);
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {.dry = true};
  if (received < 0) return {.end = {Code::kSystem, error_text(errno), {}}};
  const auto bytes = static_cast<size_t>(received);
  counters_.bytes_received += bytes;
  ++counters_.receive_calls;
  return {.bytes = space.first(bytes), .wire = bytes, .dry = bytes > 0 && bytes < space.size()};
}

Channel::Received Channel::receive(std::span<std::byte> space) {
  PCCL_ASSERT(!space.empty());
  if (!tls_) {
    Received received = receive_once(space);
    if (received.bytes.empty() && !received.dry && received.end.ok()) received.end = closed();
    return received;
  }
  size_t wire = 0;
  if (!holds_input_) {
    const Received received = receive_once(space);
    wire = received.bytes.size();
    if (wire == 0 && (received.dry || !received.end.ok())) return received;
    if (wire == 0) {
      const Status cut = tls_->ended();
      return {.end = cut.ok() ? closed() : cut};
    }
    input_ = space.first(wire);
    dry_ = received.dry;
  }
  Result<Bytes> read = tls_->read(input_);
  if (!read.ok()) return failed(read.status());
  holds_input_ = !read.value().empty();
  if (!holds_input_ && tls_->closed_by_other()) return {.wire = wire, .end = closed()};
  return {.bytes = read.value(), .wire = wire, .dry = !holds_input_ && dry_};
}

// Sends the last bytes, which contain the reason, to the other end, as far as the socket accepts
// them.
Channel::Received Channel::failed(Status why) {
  input_ = {};
  const bool plain = tls_->refusal() == Tls::Refusal::kPlainText;
  const Bytes last = plain ? Bytes(plain_answer_) : tls_->outgoing();
  if (!last.empty()) {
    [[maybe_unused]] const ssize_t sent =
        send(socket_.fd(), last.data(), last.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  return {.end = std::move(why)};
}

// ---- Sending ----

Result<std::span<const Channel::Bytes>> Channel::prepare(std::span<const Bytes> plaintext) {
  if (!tls_) return plaintext;
  if (tls_->outgoing().empty() && !plaintext.empty()) {
    PCCL_DCHECK(taken_ == 0);
    Result<size_t> written = tls_->write(plaintext);
    if (!written.ok()) return written.status();
    taken_ = written.value();
  }
  outgoing_ = tls_->outgoing();
  return std::span<const Bytes>(&outgoing_, outgoing_.empty() ? 0 : 1);
}

size_t Channel::sent(size_t bytes) {
  ++counters_.send_calls;
  counters_.bytes_sent += bytes;
  if (!tls_) return bytes;
  tls_->sent(bytes);
  return std::exchange(taken_, 0);
}

void Channel::close() {
  if (tls_) tls_->close();
}

}  // namespace pccl::net
