#include "master/shell/invitation.h"

#include <utility>
#include <variant>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/net/token_channel.h"

namespace pccl::master {

Invitation::Invitation(net::Loop& loop, const protocol::Hello& hello, Endpoint to, Duration silence,
                       const Dial& dial, Callbacks callbacks)
    : loop_(loop),
      hello_(hello),
      to_(std::move(to)),
      silence_(silence),
      dial_(dial),
      callbacks_(std::move(callbacks)),
      keepalive_(protocol::kTicksPerTimeout, silence),
      timer_(loop, [this] { beat(); }),
      connector_(std::make_unique<net::Connector>(
          loop, to_, silence,
          [this](Result<net::Socket> socket) { connected(std::move(socket)); })) {}

Invitation::~Invitation() { loop_.assert_on_loop(); }

void Invitation::connected(Result<net::Socket> socket) {
  if (!socket.ok()) return fail(socket.status());
  Result<net::Channel> channel = dial_(std::move(socket.value()), monotonic_now() + silence_);
  if (!channel.ok()) return fail(channel.status());
  const bool encrypted = channel.value().encrypted();
  timer_.arm(monotonic_now() + protocol::beat_of(silence_));
  stream_ = std::make_unique<net::Stream>(
      loop_, std::move(channel.value()),
      net::Stream::Callbacks{
          .on_bytes = [this](std::span<const std::byte> bytes) { received(bytes); },
          .on_closed =
              [this](const Status& why) {
                const net::Tls::Refusal refusal = stream_->refusal();
                fail(net::explain_handshake(why, refusal, to_, stream_->identity()));
              },
          .on_established = [this] { greet(); },
      });
  if (!encrypted) greet();
}

void Invitation::greet() {
  std::vector<std::byte> bytes;
  protocol::encode(hello_, bytes);
  stream_->send(bytes);
}

void Invitation::beat() {
  keepalive_.beat();
  if (keepalive_.too_long()) return fail({Code::kSystem, "no answer for " + text(silence_), {}});
  timer_.arm(monotonic_now() + protocol::beat_of(silence_));
}

void Invitation::received(std::span<const std::byte> bytes) {
  keepalive_.received();
  decoder_.feed(bytes);
  while (!over_) {
    Result<std::optional<protocol::Message>> next = decoder_.next();
    if (!next.ok()) return fail(next.status());
    if (!next.value()) return;
    const auto* const rejected = std::get_if<protocol::Reject>(&*next.value());
    if (rejected == nullptr) continue;  // a Ping
    over_ = true;
    const auto declined = callbacks_.on_declined;  // this object may be destroyed meanwhile
    return declined(*rejected);
  }
}

void Invitation::fail(const Status& why) {
  if (std::exchange(over_, true)) return;
  timer_.disarm();
  const auto unreachable = callbacks_.on_unreachable;  // likewise
  unreachable(why);
}

}  // namespace pccl::master
