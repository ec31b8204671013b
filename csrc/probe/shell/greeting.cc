#include "csrc/probe/shell/greeting.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/little_endian.h"
#include "csrc/net/stream.h"
#include "csrc/protocol/codec.h"
#include "csrc/protocol/version.h"

namespace pccl::probe {
namespace {

// The handshake ends later than the greeting: kSilent is the ending of a master that says nothing.
constexpr Duration kHandshakeSlack = std::chrono::seconds(5);
constexpr uint64_t kUnixMsMax = 8'000'000'000'000;  // in the year 2223; Duration ends in 2262
constexpr size_t kLengthBytes = 4;                  // the field in front of each message

Greeting::Ending ending_of(LinkFault fault) {
  switch (fault) {
    case LinkFault::kRefused: return Greeting::Ending::kRefused;
    case LinkFault::kNoAnswer: return Greeting::Ending::kNoAnswer;
    default: return Greeting::Ending::kNoConnection;
  }
}

Greeting::Ending ending_of(Code code, net::Tls::Refusal refusal) {
  switch (refusal) {
    case net::Tls::Refusal::kUnknownIdentity: return Greeting::Ending::kUnknownToken;
    case net::Tls::Refusal::kWrongKey: return Greeting::Ending::kWrongSecret;
    case net::Tls::Refusal::kPlainText: return Greeting::Ending::kPlainText;
    case net::Tls::Refusal::kOther: break;
  }
  return code == Code::kAuthentication ? Greeting::Ending::kUnproven : Greeting::Ending::kClosed;
}

// A Hello that no run admits, because it names none.
std::vector<std::byte> hello(uint32_t padding) {
  PCCL_ASSERT(padding <= Greeting::kPaddingMax);
  protocol::Hello message;
  message.library = std::string("pccl ") + protocol::kRelease;
  std::vector<std::byte> bytes;
  protocol::encode(message, bytes);
  bytes.resize(bytes.size() + padding);
  store_little_endian(bytes.data(), static_cast<uint32_t>(bytes.size() - kLengthBytes));
  return bytes;
}

std::vector<std::byte> question(uint16_t port) {
  protocol::DialBack message;
  message.port = port;
  std::vector<std::byte> bytes;
  protocol::encode(message, bytes);
  return bytes;
}

}  // namespace

struct Greeting::Impl {
  Impl(net::Loop& on, const Endpoint& master, Options given, Callback called)
      : loop(on),
        options(std::move(given)),
        callback(std::move(called)),
        timer(on, [this] { end({.ending = Ending::kSilent, .why = "it does not answer"}); }),
        connector(std::make_unique<net::Connector>(
            on, master, options.at_most,
            [this](Result<net::Socket> socket) { connected(std::move(socket)); })) {}

  void connected(Result<net::Socket> socket);
  Result<net::Channel> channel(net::Socket socket) const;
  void begin();
  void received(std::span<const std::byte> bytes);
  void closed(const Status& why);
  void end(Outcome outcome);

  net::Loop& loop;
  const Options options;
  const Callback callback;
  net::Timer timer;
  std::unique_ptr<net::Connector> connector;
  std::unique_ptr<net::Stream> stream;
  protocol::Decoder decoder;
  bool is_open = false;  // the stream has not reported its end
  bool over = false;
};

void Greeting::Impl::connected(Result<net::Socket> socket) {
  if (!socket.ok()) {
    return end({.ending = ending_of(connector->fault()), .why = socket.status().message});
  }
  Result<net::Channel> made = channel(std::move(socket.value()));
  if (!made.ok()) return end({.ending = Ending::kNoConnection, .why = made.status().message});
  const bool encrypted = made.value().encrypted();
  is_open = true;
  stream = std::make_unique<net::Stream>(
      loop, std::move(made.value()),
      net::Stream::Callbacks{
          .on_bytes = [this](std::span<const std::byte> bytes) { received(bytes); },
          .on_closed = [this](const Status& why) { closed(why); },
          .on_established = [this] { begin(); }});
  timer.arm(monotonic_now() + options.at_most);
  if (!encrypted) begin();
}

Result<net::Channel> Greeting::Impl::channel(net::Socket socket) const {
  if (!options.token) return net::Channel(std::move(socket));
  Result<net::Tls> tls = net::Tls::dial(options.token->first, options.token->second);
  if (!tls.ok()) return tls.status();
  const Instant by = monotonic_now() + options.at_most + kHandshakeSlack;
  return net::Channel(std::move(socket), std::move(tls.value()), by);
}

void Greeting::Impl::begin() {
  stream->send(options.dial_back ? question(*options.dial_back) : hello(options.padding));
}

void Greeting::Impl::received(std::span<const std::byte> bytes) {
  if (over) return;
  decoder.feed(bytes);
  const Result<std::optional<protocol::Message>> next = decoder.next();
  if (!next.ok()) return end({.ending = Ending::kNoMaster, .why = next.status().message});
  if (!next.value()) return;
  const auto* reject = std::get_if<protocol::Reject>(&*next.value());
  if (reject != nullptr) return end({.ending = Ending::kAnswered, .reject = *reject});
  const auto* dialed = std::get_if<protocol::DialedBack>(&*next.value());
  if (dialed != nullptr && options.dial_back)
    return end({.ending = Ending::kAnswered, .dialed = *dialed});
  end({.ending = Ending::kNoMaster,
       .why = std::string("it has answered with ") + protocol::name(*next.value())});
}

void Greeting::Impl::closed(const Status& why) {
  is_open = false;
  end({.ending = ending_of(why.code, stream->refusal()), .why = why.message});
}

void Greeting::Impl::end(Outcome outcome) {
  loop.assert_on_loop();
  if (std::exchange(over, true)) return;
  timer.disarm();
  if (is_open) {
    outcome.rtt = stream->socket().path().smoothed;
    outcome.unacknowledged = stream->socket().bytes_queued();
  }
  if (outcome.dialed) {
    const std::chrono::milliseconds there(std::min(outcome.dialed->unix_ms, kUnixMsMax));
    outcome.ahead = there + outcome.rtt / 2 - unix_now();
  }
  callback(outcome);
}

Greeting::Greeting(net::Loop& loop, const Endpoint& master, Options options, Callback callback)
    : impl_(std::make_unique<Impl>(loop, master, std::move(options), std::move(callback))) {
  loop.assert_on_loop();
}

Greeting::~Greeting() = default;

}  // namespace pccl::probe
