#include "csrc/probe/shell/probe_end.h"

#include <ctime>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/framing.h"
#include "csrc/net/handshake_rate.h"
#include "csrc/net/lane.h"
#include "csrc/net/pending_connections.h"
#include "csrc/protocol/limits.h"

namespace pccl::probe {
namespace {

using net::FrameHeader;
using net::FrameType;

// Maximum number of pending connections: all connections of a trial can be pending at once.
constexpr size_t kPendingMax = size_t{2} * protocol::kTrialStreamsMax;
constexpr Duration kConnectTimeout = std::chrono::seconds(10);

// The bytes are random, so that a tunnel cannot compress them.
std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937_64 random(std::random_device{}());
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Duration thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

struct ProbeEnd::Impl {
  struct Connection final : net::FrameSink {
    Connection(Impl& of, Id number, net::Channel channel);
    void send_data();
    void close();

    // FrameSink
    void on_frame(const FrameHeader& header) override { shell.received(id, header); }
    std::span<std::byte> on_chunk(const FrameHeader& header) override;
    void on_piece(size_t, size_t bytes) override {
      if (carries) shell.arrived(bytes);
    }
    void on_chunk_end(bool) override;

    Impl& shell;
    const Id id;
    const std::string host, address;  // "10.0.0.7", "10.0.0.7:40001"
    bool carries = false;             // it carries the data of a trial
    bool dead = false;                // its lane has failed
    size_t chunk_bytes = 0;           // bytes of a chunk to send; 0: none
    std::string about;                // the server's text, while it arrives
    std::unique_ptr<net::Lane> lane;  // null: closed
  };

  Impl(net::Loop& on, std::unique_ptr<Core> of, Options given, Callbacks called)
      : loop(on),
        core(std::move(of)),
        options(std::move(given)),
        callbacks(std::move(called)),
        timer(on, [this] { on_time(); }) {}

  void step(Event event);
  void arm();
  void on_time();
  void accepted(net::Socket socket);
  void close_excess();
  void connected(Id id, Result<net::Socket> socket);
  void add(Id id, net::Channel channel);
  void remove(Id id);
  void received(Id id, const FrameHeader& header);
  void arrived(size_t bytes);
  TrialResult end_count();

  void apply(const Dial& effect);
  void apply(const Send& effect);
  void apply(const SendAbout& effect);
  void apply(const Carry& effect);
  void apply(const BeginCount& effect);
  void apply(const EndCount& effect);
  void apply(const Close& effect) { remove(effect.id); }
  void apply(const Note& effect);
  void apply(const Ready& effect) { callbacks.on_ready(effect); }
  void apply(const Measured& effect) {
    callbacks.on_measured(effect.trial, end_count(), effect.theirs);
  }
  void apply(const Over& effect) { callbacks.on_over(effect); }

  net::Loop& loop;
  const std::unique_ptr<Core> core;
  const Options options;
  const Callbacks callbacks;
  net::Timer timer;
  std::deque<Event> events;  // events that the core has not taken yet
  bool stepping = false;
  std::map<Id, std::unique_ptr<Connection>> connections;
  // Closed connections. They are destroyed on a later turn of the loop, when this object may be
  // gone.
  using Closed = std::vector<std::unique_ptr<Connection>>;
  const std::shared_ptr<Closed> deferred = std::make_shared<Closed>();

  // ---- Of a server ----
  std::unique_ptr<net::Listener> listener;
  Id accepted_last = 0;
  net::PendingConnections pending{kPendingMax};  // connections without a first frame
  net::HandshakeRate handshakes;

  // ---- Of a client ----
  Endpoint server;
  std::map<Id, std::unique_ptr<net::Connector>> connectors;

  // ---- Of a trial ----
  const std::vector<std::byte> payload = random_bytes(protocol::kChunkBytesNear);
  std::vector<std::byte> landing = std::vector<std::byte>(protocol::kChunkBytesMax);
  struct Count {
    Instant from, until, began;
    Duration used{0};  // CPU time of the thread before the count began
    uint64_t bytes = 0;
  };
  std::optional<Count> count;
};

// ---- Connection ----

ProbeEnd::Impl::Connection::Connection(Impl& of, Id number, net::Channel channel)
    : shell(of),
      id(number),
      host(channel.socket().peer_host()),
      address(text(Endpoint{host, net::peer_address(channel.socket().fd()).port()})) {
  // The error of a lane begins with the address of the other end. It is removed here, because the
  // texts that people see begin with that address, too.
  const auto failed = [this](Status why) {
    dead = true;
    if (why.message.starts_with(address + ": ")) why.message.erase(0, address.size() + 2);
    shell.step(Failed{id, std::move(why)});
  };
  const auto established = [this] {
    if (shell.listener == nullptr) shell.step(Opened{id});
  };
  lane = std::make_unique<net::Lane>(
      shell.loop, std::move(channel), *this,
      net::Lane::Callbacks{
          .on_sent = [this] { send_data(); }, .on_failed = failed, .on_established = established});
}

void ProbeEnd::Impl::Connection::send_data() {
  if (lane == nullptr || chunk_bytes == 0 || !lane->idle()) return;
  FrameHeader header;
  header.type = FrameType::kChunk;
  header.length = static_cast<uint32_t>(chunk_bytes);
  lane->send_chunk(header, std::span(shell.payload).first(chunk_bytes));
}

// Data that has not left would disturb the next trial.
void ProbeEnd::Impl::Connection::close() {
  if (carries && lane != nullptr && !dead) lane->socket().discard_at_end();
  lane.reset();
}

std::span<std::byte> ProbeEnd::Impl::Connection::on_chunk(const FrameHeader& header) {
  if (carries) return std::span(shell.landing).first(header.length);
  const bool expected = shell.listener == nullptr && about.empty() && header.length > 0 &&
                        header.length <= protocol::kAboutBytesMax;
  if (!expected) {
    shell.step(Failed{id, violation("sent data out of turn")});
    return {};
  }
  about.resize(header.length);
  return std::as_writable_bytes(std::span(about));
}

void ProbeEnd::Impl::Connection::on_chunk_end(bool) {
  if (!carries) shell.step(AboutReceived{id, about});
}

// ---- Events ----

void ProbeEnd::Impl::step(Event event) {
  loop.assert_on_loop();
  events.push_back(std::move(event));
  if (std::exchange(stepping, true)) return;
  while (!events.empty()) {
    const Event next = std::move(events.front());
    events.pop_front();
    Effects effects;
    core->step(next, monotonic_now(), effects);
    for (const Effect& effect : effects) {
      std::visit([this](const auto& one) { apply(one); }, effect);
    }
    if (const auto* failed = std::get_if<Failed>(&next)) remove(failed->id);
  }
  stepping = false;
  arm();
}

void ProbeEnd::Impl::arm() {
  auto at = core->deadline();
  const auto other = pending.deadline();
  if (other) at = std::min(at.value_or(*other), *other);
  at ? timer.arm(*at) : timer.disarm();
}

void ProbeEnd::Impl::on_time() {
  close_excess();
  step(TimePassed{});
}

void ProbeEnd::Impl::accepted(net::Socket socket) {
  const std::string host = socket.peer_host();
  const Instant now = monotonic_now();
  if (pending.full(host) || (!options.keys.empty() && !handshakes.take(host, now))) return;
  const Id id = ++accepted_last;
  pending.add(id, host, now);
  if (options.keys.empty()) {
    add(id, std::move(socket));
  } else {
    net::Tls tls = net::Tls::accept([this](std::string_view shown) -> std::optional<net::Key> {
      const auto key = options.keys.find(std::string(shown));
      return key == options.keys.end() ? std::nullopt : std::optional(key->second);
    });
    net::Channel channel(std::move(socket), std::move(tls), now + protocol::kHelloTimeout);
    const net::HeaderBytes refusal = net::encode_header(frame_of(Refusal::kToken));
    channel.answer_plain_text_with({refusal.begin(), refusal.end()});
    add(id, std::move(channel));
  }
  close_excess();
  arm();
}

void ProbeEnd::Impl::close_excess() {
  for (const Id id : pending.take_excess(net::pending_max(kPendingMax), monotonic_now()))
    remove(id);
}

void ProbeEnd::Impl::connected(Id id, Result<net::Socket> socket) {
  if (!socket.ok()) {
    const LinkFault fault = connectors.at(id)->fault();
    return step(Failed{id, socket.status(), false, fault});
  }
  if (options.keys.empty()) {
    add(id, std::move(socket.value()));
    return step(Opened{id});
  }
  const auto& [token, key] = *options.keys.begin();
  Result<net::Tls> tls = net::Tls::dial(token, key);
  if (!tls.ok()) return step(Failed{id, tls.status()});
  const Instant by = monotonic_now() + protocol::kHelloTimeout;
  add(id, net::Channel(std::move(socket.value()), std::move(tls.value()), by));
}

void ProbeEnd::Impl::add(Id id, net::Channel channel) {
  connections[id] = std::make_unique<Connection>(*this, id, std::move(channel));
}

void ProbeEnd::Impl::remove(Id id) {
  pending.remove(id);
  connectors.erase(id);
  const auto at = connections.find(id);
  if (at == connections.end()) return;
  at->second->close();
  if (deferred->empty()) loop.post([all = deferred] { all->clear(); });
  deferred->push_back(std::move(at->second));
  connections.erase(at);
}

void ProbeEnd::Impl::received(Id id, const FrameHeader& header) {
  pending.remove(id);
  step(FrameReceived{id, header});
}

void ProbeEnd::Impl::arrived(size_t bytes) {
  if (!count) return;
  const Instant now = monotonic_now();
  if (now >= count->from && now < count->until) count->bytes += bytes;
}

// ---- Effects ----

void ProbeEnd::Impl::apply(const Dial& effect) {
  const Id id = effect.id;
  connectors[id] = std::make_unique<net::Connector>(
      loop, server, kConnectTimeout,
      [this, id](Result<net::Socket> socket) { connected(id, std::move(socket)); });
}

void ProbeEnd::Impl::apply(const Send& effect) {
  const auto at = connections.find(effect.id);
  if (at != connections.end()) at->second->lane->send(effect.header);
}

void ProbeEnd::Impl::apply(const SendAbout& effect) {
  const auto at = connections.find(effect.id);
  if (at == connections.end()) return;
  FrameHeader header;
  header.type = FrameType::kChunk;
  header.length = static_cast<uint32_t>(options.about.size());
  at->second->lane->send_copy(header, std::as_bytes(std::span(options.about)));
}

void ProbeEnd::Impl::apply(const Carry& effect) {
  const auto at = connections.find(effect.id);
  if (at == connections.end()) return;
  at->second->carries = true;
  net::Lane& lane = *at->second->lane;
  lane.set_local(effect.local);
  lane.set_alone(effect.local);
  const auto path = effect.wan ? net::PathClass::kWan : net::PathClass::kLocal;
  if (!lane.tune(path, effect.congestion)) step(TuneRefused{effect.id});
}

void ProbeEnd::Impl::apply(const BeginCount& effect) {
  count = {effect.from, effect.until, monotonic_now(), thread_time()};
  for (const Id id : effect.sending) {
    const auto at = connections.find(id);
    if (at == connections.end()) continue;
    at->second->chunk_bytes = effect.wan ? protocol::kChunkBytesWan : protocol::kChunkBytesNear;
    at->second->send_data();
  }
}

TrialResult ProbeEnd::Impl::end_count() {
  for (auto& [id, connection] : connections) {
    if (std::exchange(connection->chunk_bytes, 0) > 0) connection->lane->withdraw();
  }
  if (!count) return {};
  const double share = to_seconds(thread_time() - count->used) /
                       std::max(to_seconds(monotonic_now() - count->began), 1e-3);
  const uint64_t bytes = count->bytes;
  count.reset();
  return {bytes, 0, static_cast<uint32_t>(1000 * share)};
}

void ProbeEnd::Impl::apply(const EndCount& effect) {
  TrialResult result = end_count();
  result.lost = effect.lost;
  if (effect.tell != 0) apply(Send{effect.tell, frame_of(result)});
}

void ProbeEnd::Impl::apply(const Note& effect) {
  const auto at = connections.find(effect.id);
  callbacks.on_note(at == connections.end() ? "" : at->second->host, effect.text);
}

// ---- ProbeEnd ----

ProbeEnd::ProbeEnd(net::Loop& loop, std::unique_ptr<Core> core, Options options,
                   Callbacks callbacks)
    : impl_(
          std::make_unique<Impl>(loop, std::move(core), std::move(options), std::move(callbacks))) {
  loop.assert_on_loop();
}

ProbeEnd::~ProbeEnd() = default;

Result<uint16_t> ProbeEnd::listen(const Endpoint& at) {
  impl_->loop.assert_on_loop();
  PCCL_ASSERT(impl_->listener == nullptr);
  PCCL_ASSERT(!impl_->options.about.empty());
  auto opened = net::Listener::open(impl_->loop, at, [impl = impl_.get()](net::Socket socket) {
    impl->accepted(std::move(socket));
  });
  if (!opened.ok()) return opened.status();
  impl_->listener = std::move(opened.value());
  return impl_->listener->port();
}

void ProbeEnd::dial(const Endpoint& server) {
  impl_->loop.assert_on_loop();
  PCCL_ASSERT(impl_->listener == nullptr && impl_->connectors.empty());
  impl_->server = server;
  impl_->step(Started{});
}

}  // namespace pccl::probe
