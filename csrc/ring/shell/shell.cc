// The driver of the data plane, on the peer loop: each thing that happens to a connection becomes
// an event of LinkCore, and its effects are carried out at once. A lane that is up joins the
// Engine. csrc/link/core.h lists the failures.

#include "csrc/ring/shell/shell.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "csrc/link/core.h"
#include "csrc/link/path_monitor.h"
#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/handshake_rate.h"
#include "csrc/net/keys.h"
#include "csrc/net/loop_share.h"
#include "csrc/net/pending_connections.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/shell/lane_connection.h"
#include "csrc/ring/shell/peer_thread.h"

namespace pccl::ring {
namespace {

using link::ConnectionId;

// Room for pending connections of all members at once. Honest peers send their hello within a round
// trip, so the oldest connection is closed first.
constexpr size_t kPendingMax = protocol::kMembersMax + size_t{3} * protocol::kLanesMax;
// All members may share one address, and two of them open all their lanes at once.
constexpr size_t kPendingPerNetworkMax = protocol::kMembersMax + size_t{2} * protocol::kLanesMax;
// Limit of pending connections when the application has few descriptors left. A link that is needed
// still comes in; pending connections hold no descriptor for long.
constexpr size_t kPendingWhenScarce = 8;

// Connections that wait for this peer to learn its identity, about a round trip to the master. All
// members may dial before the master's Welcome arrives.
constexpr size_t kEarlyMax = protocol::kMembersMax;

// Lanes of a link. Further lanes only make it faster, so they may use a sixteenth of the
// descriptors that this process may open; the rest is for the application. The usual 1,024
// descriptors allow all lanes.
uint32_t lanes_affordable() {
  return static_cast<uint32_t>(
      std::clamp<size_t>(net::descriptors_max() / 16, 1, protocol::kLanesMax));
}

}  // namespace

struct Shell::Impl {
  // The lanes of a link that is up, oldest first.
  struct LaneSet {
    std::vector<ConnectionId> lanes;
    // Not on one machine. On a wan path it chooses the active lanes.
    std::optional<link::PathMonitor> monitor;
    uint64_t rate = 0;  // that was reported
  };

  Impl(Options given, Callbacks called, const std::shared_ptr<PeerThread>& thread);

  void listen(const std::string& host);
  void be(const link::Identity& identity);
  void accepted(net::Socket socket);
  void accept_plain(net::Socket socket, size_t room);
  void accept_encrypted(net::Socket socket, size_t room);
  net::Tls acceptor() const;
  void dialled(const link::Connect& connect, net::Socket socket);
  void shake_hands(const link::SendHello& send);
  void add_lane(ConnectionId id, net::Channel channel, bool dialled);
  void close_excess(size_t room);
  void proven(ConnectionId id);
  void established(ConnectionId id);
  void forget_handshake(ConnectionId id);
  void remove_lane(ConnectionId id);
  void on_tick();

  void step(const link::Event& event);
  void perform(const link::Connect& connect);
  void perform(const link::LimitAccepted& limit);
  void perform(const link::SmallerHelped& helped);
  void perform(const link::NarrowPathGone& gone);
  void perform(const link::SendHello& send);
  void perform(const link::SendPing& ping);
  void perform(const link::Close& close);
  void perform(const link::LaneUp& up);
  void perform(const link::LinkDown& down);
  void perform(const link::ReportLink& report) { callbacks.on_link(report.what); }
  void carry(LaneSet& link, LaneConnection& lane, const link::LaneUp& up);
  void window_over(PeerId peer, LaneSet& link, bool wan);
  void limit_unsent(const LaneSet& link);
  void set_contended(PeerId peer);
  void defer_destroy(std::unique_ptr<LaneConnection> lane);
  Counters count() const;
  void tear_down();

  const Options options;
  const Callbacks callbacks;
  const uint32_t lanes_max;  // of each link
  net::LoopShare loop;

  // On the peer loop only:
  link::LinkCore core;
  bool identified = false;
  std::vector<net::Socket> early;   // connections that came before the identity
  std::deque<link::Event> waiting;  // events that came during a step
  bool stepping = false;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<net::Timer> ticks, timer;
  std::map<ConnectionId, std::unique_ptr<net::Connector>> connectors;
  std::map<ConnectionId, std::unique_ptr<LaneConnection>> lanes;
  // The lanes whose TLS handshake is not complete. The core has not accepted those that others have
  // dialled: those that have proven nothing, and those that perhaps have (Tls::proven).
  struct Dialled {
    protocol::LaneCredential credential;
    std::optional<net::Socket> socket;  // until the core has told the hello
    protocol::LaneHello hello = {};
  };
  std::map<ConnectionId, Dialled> dialled_handshakes;
  net::HandshakeRate handshakes{callbacks.on_warning};
  net::PendingConnections unproven{kPendingPerNetworkMax}, half_proven{kPendingPerNetworkMax};
  uint64_t proofs = 0;
  std::map<uint64_t, ConnectionId> lane_of_proof;
  struct Accepted {
    std::string address;  // of the other end
    uint64_t proof = 0;   // its number in half_proven; 0: it has proven nothing
  };
  std::map<ConnectionId, Accepted> accepted_handshakes;
  std::map<PeerId, LaneSet> links;
  std::vector<PeerId> neighbours;
  std::vector<std::unique_ptr<LaneConnection>> deferred;  // closed, perhaps still on the stack
};

Shell::Impl::Impl(Options given, Callbacks called, const std::shared_ptr<PeerThread>& thread)
    : options(std::move(given)),
      callbacks(std::move(called)),
      lanes_max(lanes_affordable()),
      loop({thread, &thread->loop}),
      core({.peer_timeout = options.peer_timeout,
            .wan_rtt_min = options.wan_rtt_min,
            .lanes = options.lanes,
            .lanes_max = lanes_max}),
      engine(std::make_unique<Engine>(
          Engine::Callbacks{.on_transferred = callbacks.on_transferred,
                            .on_progressed = callbacks.on_progressed,
                            .on_agreed = callbacks.on_agreed,
                            .on_drained = callbacks.on_drained,
                            .on_fail_link =
                                [this](PeerId peer, const std::string& why) {
                                  step(link::Suspected{peer, why});
                                },
                            .on_failed = callbacks.on_failed,
                            .on_requested = callbacks.on_requested},
          std::shared_ptr<memory::Pool>(thread, &thread->pool))) {
  if (options.lanes <= lanes_max) return;
  callbacks.on_warning("PCCL_LANES is " + std::to_string(options.lanes) +
                       ", but this process may have " + std::to_string(net::descriptors_max()) +
                       " files open, so that " + std::to_string(lanes_max) +
                       " connections to a neighbour are made: raise it (ulimit -n)");
}

// ---- Events ----

void Shell::Impl::listen(const std::string& host) {
  Result<std::unique_ptr<net::Listener>> opened = Status{Code::kSystem, "no port to try", {}};
  for (uint32_t port = options.port_first; port <= options.port_last; ++port) {
    opened = net::Listener::open(
        loop.loop(), {host, static_cast<uint16_t>(port)},
        [this](net::Socket socket) { accepted(std::move(socket)); }, callbacks.on_warning);
    if (opened.ok()) break;
  }
  if (!opened.ok() && options.port_last > 0) {
    const std::string range =
        std::to_string(options.port_first) + "-" + std::to_string(options.port_last);
    const std::string& why = opened.status().message;
    opened = Status{Code::kSystem, why + " (of PCCL_PORT_RANGE " + range + " none is free)", {}};
  }
  if (!opened.ok()) return callbacks.on_listening(opened.status());
  listener = std::move(opened.value());
  timer = std::make_unique<net::Timer>(loop.loop(), [this] { step(link::TimePassed{}); });
  ticks = std::make_unique<net::Timer>(loop.loop(), [this] { on_tick(); });
  ticks->arm(monotonic_now() + core.beat());
  callbacks.on_listening(listener->port());
}

void Shell::Impl::be(const link::Identity& identity) {
  core.be(identity);
  identified = true;
  for (net::Socket& socket : std::exchange(early, {})) accepted(std::move(socket));
}

void Shell::Impl::accepted(net::Socket socket) {
  if (!identified) {
    if (early.size() < net::pending_max(kEarlyMax)) early.push_back(std::move(socket));
    return;
  }
  const bool scarce = net::is_scarce(socket.fd(), kPendingWhenScarce);
  const size_t room = scarce ? kPendingWhenScarce : net::pending_max(kPendingMax);
  core.secured() ? accept_encrypted(std::move(socket), room)
                 : accept_plain(std::move(socket), room);
}

void Shell::Impl::accept_plain(net::Socket socket, size_t room) {
  const ConnectionId id = core.new_lane();
  const std::string address = socket.peer_host();
  add_lane(id, std::move(socket), false);
  step(link::Accepted{id, address, room});
}

// The core gets the connection when the other end has proven its identity.
void Shell::Impl::accept_encrypted(net::Socket socket, size_t room) {
  const ConnectionId id = core.new_lane();
  const std::string address = socket.peer_host();
  const Instant now = monotonic_now();
  if (unproven.full(address) || !handshakes.take(address, now)) return;
  accepted_handshakes[id] = {address};
  unproven.add(id.value, address, now);
  add_lane(id, net::Channel(std::move(socket), acceptor(), now + protocol::kHelloTimeout), false);
  close_excess(room);
}

void Shell::Impl::close_excess(size_t room) {
  for (const uint64_t id : unproven.take_excess(room, monotonic_now())) remove_lane({id});
}

// A captured ClientHello proves something too, and can be sent from many addresses. So these
// connections have the same limits as those that have proven nothing.
void Shell::Impl::proven(ConnectionId id) {
  const auto handshake = accepted_handshakes.find(id);
  if (handshake == accepted_handshakes.end()) return;
  const Instant now = monotonic_now();
  unproven.remove(id.value);
  handshake->second.proof = ++proofs;
  lane_of_proof[proofs] = id;
  half_proven.add(proofs, handshake->second.address, now);
  step(link::Proven{id, *net::decode_lane_introduction(lanes.at(id)->identity())});
  for (const uint64_t proof : half_proven.take_excess(net::pending_max(kPendingMax), now)) {
    const Status why{Code::kSystem, "too many handshakes are not complete", {}};
    step(link::Failed{lane_of_proof.at(proof), why, LinkFault::kOther});
  }
}

net::Tls Shell::Impl::acceptor() const {
  return net::Tls::accept([this](std::string_view shown) -> std::optional<net::Key> {
    const auto introduction = net::decode_lane_introduction(shown);
    const auto key = introduction ? core.key_of(*introduction) : std::nullopt;
    return key ? std::optional(net::Key(*key)) : std::nullopt;
  });
}

void Shell::Impl::dialled(const link::Connect& connect, net::Socket socket) {
  if (connect.credential) {
    dialled_handshakes[connect.lane] = {*connect.credential, std::move(socket)};
  } else {
    add_lane(connect.lane, std::move(socket), true);
  }
  step(link::Connected{connect.lane});
}

// The hello follows when the handshake is complete. The introduction carries a part of it before.
void Shell::Impl::shake_hands(const link::SendHello& send) {
  Dialled& own = dialled_handshakes.at(send.lane);
  own.hello = send.hello;
  const protocol::LaneIntroduction introduction{own.credential.identity, send.hello.serial,
                                                send.hello.further};
  Result<net::Tls> tls = net::Tls::dial(net::encode(introduction), net::Key(own.credential.key));
  if (!tls.ok()) return step(link::Failed{send.lane, tls.status(), LinkFault::kOther});
  // The core waits for the answer to the hello, and gives up first.
  const Instant by = monotonic_now() + 2 * protocol::kHelloTimeout;
  net::Channel channel(std::move(*own.socket), std::move(tls.value()), by);
  own.socket.reset();
  add_lane(send.lane, std::move(channel), true);
}

void Shell::Impl::add_lane(ConnectionId id, net::Channel channel, bool dialled) {
  lanes[id] = std::make_unique<LaneConnection>(
      loop.loop(), std::move(channel), dialled,
      LaneConnection::Callbacks{
          .on_hello =
              [this, id](const std::optional<protocol::LaneHello>& hello) {
                step(link::HelloReceived{id, hello, lanes.at(id)->path().least});
              },
          .on_pong =
              [this, id](uint64_t number) {
                step(link::PongReceived{id, number});
              },
          .on_failed =
              [this, id](const Status& why, LinkFault fault) {
                step(link::Failed{id, why, fault});
              },
          .on_proven = [this, id] { proven(id); },
          .on_established = [this, id] { established(id); }});
}

void Shell::Impl::established(ConnectionId id) {
  const auto own = dialled_handshakes.extract(id);
  if (own) return lanes.at(id)->send_hello(false, own.mapped().hello);
  const std::string address = accepted_handshakes.at(id).address;
  forget_handshake(id);
  const auto introduction = net::decode_lane_introduction(lanes.at(id)->identity());
  step(link::Accepted{id, address, net::pending_max(kPendingMax), introduction});
}

void Shell::Impl::forget_handshake(ConnectionId id) {
  const auto handshake = accepted_handshakes.extract(id);
  unproven.remove(id.value);
  if (!handshake || handshake.mapped().proof == 0) return;
  half_proven.remove(handshake.mapped().proof);
  lane_of_proof.erase(handshake.mapped().proof);
}

void Shell::Impl::remove_lane(ConnectionId id) {
  dialled_handshakes.erase(id);
  forget_handshake(id);
  const auto lane = lanes.find(id);
  if (lane == lanes.end()) return;
  lane->second->close();
  defer_destroy(std::move(lane->second));
  lanes.erase(lane);
}

// A late tick counts as one tick: input that has arrived meanwhile is read before the next one.
void Shell::Impl::on_tick() {
  ticks->arm(monotonic_now() + core.beat());
  close_excess(net::pending_max(kPendingMax));
  link::Tick tick;
  for (const auto& [id, lane] : lanes) {
    if (lane->take_received()) tick.received.push_back(id);
    const auto progress = lane->progress();
    if (progress) tick.progress.push_back({id, progress->segment, progress->arrived});
  }
  step(tick);
}

// ---- Effects ----

void Shell::Impl::step(const link::Event& event) {
  waiting.push_back(event);
  if (stepping) return;
  stepping = true;
  while (!waiting.empty()) {
    const link::Event next = std::move(waiting.front());
    waiting.pop_front();
    link::Effects effects;
    core.step(next, monotonic_now(), effects);
    for (const link::Effect& effect : effects)
      std::visit([this](const auto& what) { perform(what); }, effect);
    // The core never mentions a lane again that has ended by itself.
    if (const auto* failed = std::get_if<link::Failed>(&next)) remove_lane(failed->lane);
  }
  stepping = false;
  if (timer == nullptr) return;
  const auto deadline = core.deadline();
  deadline ? timer->arm(*deadline) : timer->disarm();
}

void Shell::Impl::perform(const link::Connect& connect) {
  const auto connected = [this, connect](Result<net::Socket> result) {
    const auto own = connectors.extract(connect.lane);  // the Connector lives until this returns
    if (!result.ok())
      return step(link::Refused{connect.lane, result.status().message, own.mapped()->fault()});
    dialled(connect, std::move(result.value()));
  };
  connectors[connect.lane] = std::make_unique<net::Connector>(
      loop.loop(), connect.to, connect.timeout, connected, connect.segment);
}

void Shell::Impl::perform(const link::LimitAccepted& limit) {
  listener->limit_segment(limit.segment);
}

void Shell::Impl::perform(const link::SmallerHelped& helped) {
  callbacks.on_warning(
      "large packets did not arrive between " + lanes.at(helped.lane)->ends() +
      ", smaller ones do (a router drops them and says nothing): from now on packets carry " +
      std::to_string(helped.segment) + " bytes at most, which costs some speed");
}

void Shell::Impl::perform(const link::NarrowPathGone& gone) {
  callbacks.on_warning("peer " + text(gone.peer) +
                       ", at which only small packets arrived, is gone, and so is that limit");
}

void Shell::Impl::perform(const link::SendHello& send) {
  if (dialled_handshakes.contains(send.lane)) return shake_hands(send);
  LaneConnection& lane = *lanes.at(send.lane);
  lane.send_hello(send.answer, send.hello);
  if (accepted_handshakes.contains(send.lane)) lane.open_early(*engine, send.hello.other);
}

void Shell::Impl::perform(const link::SendPing& ping) {
  net::FrameHeader header;
  header.type = net::FrameType::kPing;
  header.value = ping.number;
  lanes.at(ping.lane)->send(header);
}

void Shell::Impl::perform(const link::Close& close) {
  connectors.erase(close.lane);
  remove_lane(close.lane);
}

void Shell::Impl::perform(const link::LaneUp& up) {
  LaneSet& link = links[up.peer];
  LaneConnection& lane = *lanes.at(up.lane);
  if (!up.further && (up.wan || !up.same_machine))
    link.monitor.emplace(up.rtt, up.lanes_at_first, up.lanes_fixed || !up.wan);
  link.lanes.push_back(up.lane);
  carry(link, lane, up);
  lane.join(*engine, up.peer, up.same_machine);
  if (up.further && link.monitor) engine->rest(up.peer, link.monitor->inactive());
}

void Shell::Impl::perform(const link::LinkDown& down) {
  links.erase(down.peer);
  engine->link_down(down.peer);
}

// Lanes on a local path are always active.
void Shell::Impl::carry(LaneSet& link, LaneConnection& lane, const link::LaneUp& up) {
  const std::string refusal =
      lane.tune(up.wan ? net::PathClass::kWan : net::PathClass::kLocal, options.congestion);
  if (!refusal.empty()) callbacks.on_warning(refusal);
  lane.set_contended(neighbours.size() > 1);
  if (!link.monitor) return;
  link.monitor->add(lane);
  lane.watch([this, &link, peer = up.peer, wan = up.wan](const LaneConnection& sent) {
    if (link.monitor->chunk_sent(sent, monotonic_now())) window_over(peer, link, wan);
  });
}

void Shell::Impl::window_over(PeerId peer, LaneSet& link, bool wan) {
  const uint64_t rate = link.monitor->rate();
  if (std::exchange(link.rate, rate) != rate) callbacks.on_rate({peer, rate});
  if (!wan) return limit_unsent(link);
  step(link::LanesLearnt{peer, link.monitor->lanes_wanted()});
  engine->rest(peer, link.monitor->inactive());
}

void Shell::Impl::limit_unsent(const LaneSet& link) {
  const uint64_t bytes = link.monitor->unsent_max();
  if (bytes == 0) return;
  for (const ConnectionId id : link.lanes) lanes.at(id)->limit_unsent(bytes);
}

void Shell::Impl::set_contended(PeerId peer) {
  const auto at = links.find(peer);
  if (at == links.end()) return;
  for (const ConnectionId id : at->second.lanes) lanes.at(id)->set_contended(neighbours.size() > 1);
}

void Shell::Impl::defer_destroy(std::unique_ptr<LaneConnection> lane) {
  if (deferred.empty()) loop.post([this] { deferred.clear(); });
  deferred.push_back(std::move(lane));
}

Shell::Counters Shell::Impl::count() const {
  Counters counters{.engine = engine->counters(), .links = {}};
  for (const auto& [peer, seen] : core.links()) {
    Counters::OfLink& sum = counters.links.emplace_back();
    sum.peer = peer;
    sum.serial = seen.serial;
    sum.lanes = static_cast<uint32_t>(seen.lanes.size());
    const auto& monitor = links.at(peer).monitor;
    const protocol::LaneBits inactive = monitor ? monitor->inactive() : 0;
    sum.lanes_used = sum.lanes - static_cast<uint32_t>(std::popcount(inactive));
    sum.rtt = seen.rtt;
    sum.rate = monitor ? monitor->rate() : 0;
    for (const ConnectionId id : seen.lanes) {
      const net::Lane::Counters one = lanes.at(id)->counters();
      sum.bytes_sent += one.bytes_sent;
      sum.bytes_received += one.bytes_received;
      sum.send_calls += one.send_calls;
      sum.receive_calls += one.receive_calls;
    }
  }
  return counters;
}

// Others may share the loop and the pool. So all that is on the loop, or has memory of the pool,
// ends here.
void Shell::Impl::tear_down() {
  listener.reset();
  timer.reset();
  ticks.reset();
  connectors.clear();
  early.clear();
  dialled_handshakes.clear();
  for (const auto& [id, lane] : lanes) lane->close();
  links.clear();
  lanes.clear();
  deferred.clear();
  engine.reset();
}

// ---- Shell: posts to the peer loop ----

Shell::Shell(Options options, Callbacks callbacks, std::shared_ptr<PeerThread> thread) {
  if (thread == nullptr) thread = std::make_shared<PeerThread>();
  impl_ = std::make_unique<Impl>(std::move(options), std::move(callbacks), thread);
}

Shell::~Shell() {
  impl_->loop.end([impl = impl_.get()] { impl->tear_down(); });
}

void Shell::listen(const std::string& host) {
  if (!impl_->loop.status().ok()) return impl_->callbacks.on_listening(impl_->loop.status());
  impl_->loop.post([impl = impl_.get(), host] { impl->listen(host); });
}

void Shell::accept_as(PeerId self, uint64_t run_id, uint16_t version,
                      std::optional<protocol::AcceptingKey> accepting) {
  impl_->loop.post([impl = impl_.get(), self, run_id, version, accepting] {
    impl->be({self, run_id, net::machine_id(), version, accepting});
  });
}

void Shell::accept_with(const protocol::AcceptingKey& key) {
  impl_->loop.post([impl = impl_.get(), key] { impl->step(link::AcceptWith{key}); });
}

void Shell::dial(PeerId peer, std::vector<Endpoint> at, uint32_t dead_serial,
                 std::optional<protocol::LaneCredential> credential) {
  impl_->loop.post([impl = impl_.get(), peer, at = std::move(at), dead_serial, credential] {
    impl->step(link::Dial{peer, at, dead_serial, credential});
  });
}

void Shell::forget(PeerId peer) {
  impl_->loop.post([impl = impl_.get(), peer] { impl->step(link::Forget{peer}); });
}

void Shell::begin_epoch(Epoch epoch, std::vector<PeerId> peers, std::vector<PeerId> neighbours) {
  impl_->loop.post(
      [impl = impl_.get(), epoch, peers = std::move(peers), neighbours = std::move(neighbours)] {
        impl->engine->begin_epoch(epoch, peers);
        impl->neighbours = neighbours;
        impl->step(link::NeighboursKnown{neighbours});
        for (const PeerId peer : neighbours) impl->set_contended(peer);
      });
}

void Shell::open_lanes(PeerId peer, bool measured) {
  impl_->loop.post([impl = impl_.get(), peer, measured] {
    impl->step(link::LanesWanted{peer, measured});
  });
}

void Shell::sample(PeerId peer) {
  impl_->loop.post([impl = impl_.get(), peer] {
    const auto received = impl->engine->received_from(peer);
    impl->callbacks.on_sampled(
        {peer, received.has_value(), received.value_or(0), impl->core.opening(peer)});
  });
}

void Shell::post(Task task, Memory memory) {
  impl_->loop.post(
      [impl = impl_.get(), task = std::move(task), memory = std::move(memory)]() mutable {
        impl->engine->post(std::move(task), std::move(memory));
      });
}

void Shell::staged(OpKey op) {
  impl_->loop.post([impl = impl_.get(), op] { impl->engine->staged(op); });
}

void Shell::end(OpEnded end) {
  impl_->loop.post([impl = impl_.get(), end] { impl->engine->end(end); });
}

void Shell::done(OpKey op) {
  impl_->loop.post([impl = impl_.get(), op] { impl->engine->done(op); });
}

Shell::Counters Shell::counters() {
  if (impl_->loop.on_loop()) return impl_->count();
  // The promise belongs to the task alone. If the loop drops the task, the promise breaks and the
  // wait ends.
  auto promise = std::make_shared<std::promise<Counters>>();
  std::future<Counters> answer = promise->get_future();
  impl_->loop.post(
      [impl = impl_.get(), promise = std::move(promise)] { promise->set_value(impl->count()); });
  answer.wait();
  try {
    return answer.get();
  } catch (const std::future_error&) {
    return {};
  }
}

}  // namespace pccl::ring
