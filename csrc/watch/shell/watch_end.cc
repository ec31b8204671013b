#include "csrc/watch/shell/watch_end.h"

#include <utility>
#include <vector>

#include "csrc/net/token_channel.h"
#include "csrc/protocol/limits.h"

namespace pccl::watch {

WatchEnd::WatchEnd(net::Loop& loop, Plan plan, Options options, Callbacks callbacks)
    : loop_(loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      core_(std::move(plan), monotonic_now()),
      timer_(loop, [this] { step(TimePassed{}); }),
      connector_(std::make_unique<net::Connector>(
          loop, options_.master, protocol::kConnectTimeoutMax,
          [this](Result<net::Socket> socket) { connected(std::move(socket)); })) {
  timer_.arm(*core_.deadline());
}

WatchEnd::~WatchEnd() { loop_.assert_on_loop(); }

void WatchEnd::connected(Result<net::Socket> socket) {
  loop_.assert_on_loop();
  if (over_) return;
  if (!socket.ok()) return step(Failed{socket.status()});
  const Token* token = options_.token ? &*options_.token : nullptr;
  Result<net::Channel> channel =
      net::channel_to_master(std::move(socket.value()), options_.master, token, options_.insecure,
                             monotonic_now() + WatchCore::kAnswerTimeout);
  if (!channel.ok()) return step(Failed{channel.status()});
  const bool encrypted = channel.value().encrypted();
  stream_ = std::make_unique<net::Stream>(
      loop_, std::move(channel.value()),
      net::Stream::Callbacks{
          .on_bytes = [this](std::span<const std::byte> bytes) { received(bytes); },
          .on_closed =
              [this](const Status& why) {
                const std::string id = options_.token ? options_.token->id : "";
                step(Failed{net::explain_handshake(why, stream_->refusal(), options_.master, id)});
              },
          .on_established = [this] { step(Connected{}); }});
  if (!encrypted) step(Connected{});
}

void WatchEnd::received(std::span<const std::byte> bytes) {
  decoder_.feed(bytes);
  while (!over_) {
    Result<std::optional<protocol::Message>> next = decoder_.next();
    if (!next.ok()) return step(Failed{next.status()});
    if (!next.value()) return;
    step(Received{std::move(*next.value())});
  }
}

void WatchEnd::step(const Event& event) {
  if (over_) return;
  Effects effects;
  core_.step(event, monotonic_now(), effects);
  for (const Effect& effect : effects)
    std::visit([this](const auto& what) { apply(what); }, effect);
  const auto deadline = core_.deadline();
  deadline ? timer_.arm(*deadline) : timer_.disarm();
}

void WatchEnd::apply(const Send& effect) {
  std::vector<std::byte> bytes;
  protocol::encode(effect.message, bytes);
  stream_->send(bytes);
}

void WatchEnd::apply(const Over& effect) {
  over_ = true;
  if (stream_ != nullptr) stream_->close_after_flush();
  callbacks_.on_over(effect);
}

}  // namespace pccl::watch
