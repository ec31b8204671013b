#include "tests/sim/sim_links.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tests/sim/peer_node.h"

namespace pccl::sim {

using link::ConnectionId;
using net::FrameHeader;
using net::FrameType;

// Reads the frames of a wire: passes hello and pongs to the core, answers pings, and hands the rest
// to the engine.
class SimLinks::Sink : public net::FrameSink {
 public:
  Sink(SimLinks& links, ConnectionId id, link::Port& port, bool dialled)
      : links_(links), id_(id), port_(port), dialled_(dialled) {}
  void join(link::LaneSink& lane) { lane_ = &lane; }
  link::LaneSink* lane() const { return lane_; }

  void on_frame(const FrameHeader& header) override {
    if (lane_ == nullptr)
      return hello(net::hello_in(dialled_ ? FrameType::kHelloOk : FrameType::kHello, header));
    if (header.type == FrameType::kPong) return links_.step(link::PongReceived{id_, header.value});
    if (header.type != FrameType::kPing) {
      lane_->on_frame(header);
      return links_.engine_.check();
    }
    FrameHeader pong;
    pong.type = FrameType::kPong;
    pong.value = header.value;
    port_.send(pong);
  }
  std::span<std::byte> on_chunk(const FrameHeader& header) override {
    if (lane_ == nullptr) {
      hello({});
      return {};
    }
    const std::span<std::byte> where = lane_->on_chunk(header);
    links_.engine_.check();
    return where;
  }
  void on_piece(size_t at, size_t bytes) override { lane_->on_piece(at, bytes); }
  void on_chunk_end(bool valid) override {
    lane_->on_chunk_end(valid);
    links_.engine_.check();
  }

 private:
  void hello(const std::optional<protocol::LaneHello>& hello) { links_.received_hello(id_, hello); }
  SimLinks& links_;
  const ConnectionId id_;
  link::Port& port_;
  const bool dialled_;
  link::LaneSink* lane_ = nullptr;
};

SimLinks::SimLinks(PeerNode& node, ring::Engine& engine, const link::Options& options,
                   std::function<void(const protocol::LinkReport&)> on_report)
    : node_(node), engine_(engine), on_report_(std::move(on_report)), core_(options) {}

SimLinks::~SimLinks() = default;

link::HelloReceived SimLinks::received(ConnectionId id,
                                       std::optional<protocol::LaneHello> hello) const {
  const WorldOptions& options = node_.world().options();
  if (options.plant == Bug::kAnyRun && hello) hello->run_id = run_id_;
  return {id, hello, std::chrono::microseconds(options.rtt)};
}

// The handshake comes before the first frame.
void SimLinks::received_hello(ConnectionId id, const std::optional<protocol::LaneHello>& hello) {
  Connection& connection = connections_.at(id);
  if (connection.hello) established(id);
  if (!std::exchange(connection.pending, false)) return step(received(id, hello));
  const auto shown = std::exchange(connection.shown, {});
  step(link::Accepted{received(id, hello), connection.other->name(), shown});
}

void SimLinks::listen() { listening_ = true; }

void SimLinks::accept_as(const link::Identity& identity) {
  core_.set_identity(identity);
  run_id_ = identity.run_id;
  identified_ = true;
  arm_tick();
}

// ---- Time ----

Instant SimLinks::now() const { return node_.clock(); }

void SimLinks::later(Duration delay, std::function<void()> what) {
  node_.world().event_loop().after(delay, [this, what = std::move(what)] { node_.run(what); });
}

void SimLinks::arm() {
  const uint64_t armed = ++timer_;
  const auto deadline = core_.deadline();
  if (!deadline || over_) return;
  later(std::max(*deadline - now(), Duration{0}) + node_.late(), [this, armed] {
    if (armed == timer_) step(link::TimePassed{});
  });
}

void SimLinks::set_time() { arm(); }

void SimLinks::arm_tick() {
  later(core_.beat() + node_.late(), [this] { on_tick(); });
}

// A tick counts once, however late it is.
void SimLinks::on_tick() {
  if (over_) return;
  arm_tick();
  destroyed_later_.clear();
  link::Tick tick;
  for (const auto& [id, connection] : connections_) {
    if (connection.wire->take_received(connection.side)) tick.received.push_back(id);
    if (auto progress = connection.wire->progress(connection.side)) {
      progress->lane = id;
      tick.progress.push_back(*progress);
    }
  }
  step(tick);
}

void SimLinks::step(const link::Event& event) {
  if (over_) return;
  link::Effects effects;
  core_.step(event, now(), effects);
  core_.check();
  for (const link::Effect& effect : effects)
    std::visit([this](const auto& what) { perform(what); }, effect);
  arm();
}

// ---- Connecting ----

void SimLinks::perform(const link::Connect& connect) {
  connecting_[connect.lane] = connect.to.port;
  try_to_connect(connect.lane, connect, connect.timeout);
}

// A lost SYN is sent again. The other machine's system answers it, not its process.
void SimLinks::try_to_connect(ConnectionId id, const link::Connect& connect, Duration left) {
  if (!connecting_.contains(id) || over_) return;
  World& world = node_.world();
  PeerNode* const other = world.by_port(connect.to.port);
  const bool reachable = other != nullptr && other->alive() && !other->unreachable &&
                         !other->closed && !node_.unreachable && !node_.cannot_dial &&
                         world.network().open_both_ways(node_.port(), other->port());
  if (!reachable || !other->links().listening_ || other->links().over_) {
    const bool refused = reachable;
    if (refused || left <= Duration{0}) {
      connecting_.erase(id);
      return step(refused ? link::Refused{id, "connection refused", LinkFault::kRefused}
                          : link::Refused{id, "connection timed out", LinkFault::kNoAnswer});
    }
    const Duration pause = std::min(left, Network::kSynPause);
    return later(pause,
                 [this, id, connect, rest = left - pause] { try_to_connect(id, connect, rest); });
  }
  if (!other->links().identified_) {
    return later(world.control_delay(),
                 [this, id, connect, left] { try_to_connect(id, connect, left); });
  }
  auto wire = std::make_shared<Wire>(world.event_loop(), world.random(), world.options().wire);
  for (const uint32_t limit : {connect.segment, other->links().accepted_segment_}) {
    if (limit > 0) wire->segment = std::min(wire->segment, limit);
  }
  // With keys the other process learns of the connection only by the handshake.
  if (!connect.credential)
    tell(*other, [this, other, wire] { other->links().accept(node_, wire); });
  later(2 * world.control_delay(),
        [this, id, other, wire, with = connect.credential] { connected(id, *other, wire, with); });
}

void SimLinks::tell(PeerNode& to, std::function<void()> what) {
  World& world = node_.world();
  const WireOptions& wire = world.options().wire;
  const Duration delay = world.random().duration(wire.delay_min, wire.delay_max);
  world.event_loop().after(delay, [this, &to, what = std::move(what)] {
    node_.world().network().pass(node_.port(), to.port(), [&to, what] { to.run(what); });
  });
}

void SimLinks::connected(ConnectionId id, PeerNode& other, const std::shared_ptr<Wire>& wire,
                         const std::optional<protocol::LaneCredential>& credential) {
  if (connecting_.erase(id) == 0 || over_) return hang_up({wire, 0, &other, nullptr, {}}, "closed");
  attach(id, other, wire, 0);
  if (credential) dialled_with_[id] = *credential;
  step(link::Connected{id});
}

ConnectionId SimLinks::accept(PeerNode& from, const std::shared_ptr<Wire>& wire) {
  const ConnectionId id = core_.new_lane();
  if (over_ || wire->cut) return id;
  attach(id, from, wire, 1);
  connections_.at(id).pending = true;
  later(protocol::kHelloTimeout, [this, id] {
    const auto at = connections_.find(id);
    if (at != connections_.end() && at->second.pending) failed(id, "no hello came in time");
  });
  return id;
}

// ---- The handshake of a run that is secured ----

void SimLinks::shake_hands(ConnectionId id, const protocol::LaneHello& hello) {
  Connection& connection = connections_.at(id);
  connection.hello = hello;
  const protocol::LaneCredential credential = dialled_with_.extract(id).mapped();
  const protocol::LaneIntroduction shown{credential.identity, hello.serial, hello.further};
  tell(*connection.other,
       [this, id, other = connection.other, wire = connection.wire, credential, shown] {
         other->links().introduced(node_, id, wire, credential, shown);
       });
}

// `from` has shown this on the connection that is its lane `theirs`.
void SimLinks::introduced(PeerNode& from, ConnectionId theirs, const std::shared_ptr<Wire>& wire,
                          const protocol::LaneCredential& credential,
                          const protocol::LaneIntroduction& shown) {
  if (over_ || wire->cut) return;
  if (!lets_in(credential) || !core_.key_of(shown)) {
    return tell(from, [&from, theirs] {
      from.links().failed(theirs, "the other end has another key", LinkFault::kAnotherPeer);
    });
  }
  const ConnectionId id = accept(from, wire);
  connections_.at(id).shown = shown;
  credentials_.push_back(credential);
  introductions_.push_back(shown);
  tell(from, [&from, theirs] { from.links().established(theirs); });
  step(link::Proven{id, shown});
}

void SimLinks::established(ConnectionId id) {
  const auto at = connections_.find(id);
  if (at == connections_.end() || !at->second.hello || over_) return;
  Connection& connection = at->second;
  connection.wire->port(connection.side)
      .send(net::hello_frame(FrameType::kHello, *std::exchange(connection.hello, {})));
}

bool SimLinks::lets_in(const protocol::LaneCredential& credential) const {
  const protocol::LaneIntroduction later{credential.identity, protocol::kSerialMax};
  return core_.key_of(later) == credential.key;
}

void SimLinks::attach(ConnectionId id, PeerNode& other, const std::shared_ptr<Wire>& wire,
                      int side) {
  Connection& connection = connections_[id];
  connection = {
      wire, side, &other, std::make_unique<Sink>(*this, id, wire->port(side), side == 0), {}};
  wire->attach(
      side,
      {.sink = connection.sink.get(),
       .on_chunk_sent =
           [this, id] {
             const auto at = connections_.find(id);
             at->second.sink->lane()->chunk_sent();
             deactivate_lanes(at->second.peer);
             engine_.check();
           },
       .on_failed = [this, id](const Status& why) { failed(id, why.message); },
       .paused = [this] { return node_.paused(); },
       .cut_off = [this,
                   &other] { return !node_.world().network().open(other.port(), node_.port()); },
       .width = [this,
                 &other] { return node_.world().network().width(other.port(), node_.port()); },
       .late = [this] { return node_.late(); }});
}

// ---- Connections ----

void SimLinks::perform(const link::SendHello& said) {
  if (strangers_.contains(said.lane)) return;
  Connection& connection = connections_.at(said.lane);
  connection.wire->serial = said.hello.serial;
  if (dialled_with_.contains(said.lane)) return shake_hands(said.lane, said.hello);
  link::Port& port = connection.wire->port(connection.side);
  port.send(net::hello_frame(said.answer ? FrameType::kHelloOk : FrameType::kHello, said.hello));
  if (!connection.shown) return;
  const auto open = engine_.open_frame(said.hello.other);
  if (!open) return;
  port.send(*open);
  connection.opened = open->epoch;
}

void SimLinks::perform(const link::SmallerHelped& helped) {
  const Connection& connection = connections_.at(helped.lane);
  node_.world().note(node_.name(), "warning: packets of " + std::to_string(helped.segment) +
                                       " bytes arrive at " + connection.other->name() +
                                       ", larger ones did not");
}

void SimLinks::perform(const link::NarrowPathGone& gone) {
  node_.world().note(node_.name(), "warning: peer " + text(gone.peer) +
                                       ", at which only small packets arrived, is gone");
}

void SimLinks::perform(const link::SendPing& ping) {
  if (strangers_.contains(ping.lane)) return;
  FrameHeader header;
  header.type = FrameType::kPing;
  header.value = ping.number;
  const Connection& connection = connections_.at(ping.lane);
  connection.wire->port(connection.side).send(header);
}

void SimLinks::perform(const link::LaneUp& up) {
  if (strangers_.contains(up.lane)) {
    node_.world().on_violation("P5 " + node_.name() + " takes a stranger for peer " +
                               text(up.peer));
    return;
  }
  Connection& connection = connections_.at(up.lane);
  connection.peer = up.peer;
  if (!up.further) check_other_end(connection, up.serial);
  connection.sink->join(
      engine_.lane_up(up.peer, connection.wire->port(connection.side), connection.opened));
}

// The other end may keep another connection for the link only if that connection has ended here.
void SimLinks::check_other_end(const Connection& connection, uint32_t serial) const {
  const SimLinks& there = connection.other->links();
  const uint32_t other = there.serial(node_);
  if (other == serial &&
      there.core_.credential_of(node_.id()) != core_.credential_of(connection.other->id())) {
    node_.world().on_violation("P5 " + node_.name() + " and " + connection.other->name() +
                               " have a link with different keys");
  }
  if (there.over_ || other == 0 || other == serial) return;
  const auto wires = there.wires_to(node_);
  const auto ended = [](const auto& wire) { return wire->cut || wire->silent_end; };
  if (std::any_of(wires.begin(), wires.end(), ended)) return;
  node_.world().on_violation("P4 " + node_.name() + " and " + connection.other->name() +
                             " keep different connections");
}

void SimLinks::perform(const link::Close& close) {
  connecting_.erase(close.lane);
  dialled_with_.erase(close.lane);
  strangers_.erase(close.lane);
  const auto at = connections_.find(close.lane);
  if (at == connections_.end()) return;
  hang_up(at->second, "closed by " + node_.name());
  destroyed_later_.push_back(std::move(at->second.sink));
  connections_.erase(at);
}

void SimLinks::hang_up(const Connection& connection, const std::string& why) {
  const std::shared_ptr<Wire> wire = connection.wire;
  wire->detach(connection.side);
  wire->cut = true;
  if (wire->silent_end) return;
  World& world = node_.world();
  world.event_loop().after(world.control_delay(), [this, wire, why, other = connection.other] {
    node_.world().network().pass(node_.port(), other->port(), [wire, why, other] {
      other->run([wire, why, other] { other->links().closed(wire, why); });
    });
  });
}

void SimLinks::closed(const std::shared_ptr<Wire>& wire, const std::string& why) {
  const auto at = std::find_if(connections_.begin(), connections_.end(),
                               [&](const auto& one) { return one.second.wire == wire; });
  if (at != connections_.end()) failed(at->first, why);
}

void SimLinks::failed(ConnectionId id, const std::string& why, LinkFault fault) {
  if (!connections_.contains(id)) return;
  step(link::Failed{id, {Code::kSystem, why, {}}, fault});
  perform(link::Close{id});  // unless the core has closed it
}

void SimLinks::close_all(const std::string& why) {
  over_ = true;
  for (const auto& [peer, link] : core_.links()) engine_.link_down(peer);
  for (auto& [id, connection] : connections_) {
    hang_up(connection, why);
    destroyed_later_.push_back(std::move(connection.sink));
  }
  connections_.clear();
  connecting_.clear();
}

void SimLinks::pump() {
  for (const auto& [id, connection] : connections_) connection.wire->pump(connection.side);
}

// Makes a random set of lanes inactive, but never all of them, at random times.
void SimLinks::deactivate_lanes(PeerId peer) {
  const auto links = core_.links();
  const auto at = links.find(peer);
  if (at == links.end() || at->second.lanes.size() == 1) return;
  Random& random = node_.world().random();
  if (!random.once_in(10)) return;
  const uint64_t all = (uint64_t{1} << at->second.lanes.size()) - 1;
  engine_.set_inactive(peer, random.below(all));
}

// ---- Network faults and queries ----

bool SimLinks::linked(const PeerNode& other) const { return core_.links().contains(other.id()); }

uint32_t SimLinks::serial(const PeerNode& other) const {
  const auto links = core_.links();
  const auto at = links.find(other.id());
  return at == links.end() ? 0 : at->second.serial;
}

std::vector<uint16_t> SimLinks::dials() const {
  std::vector<uint16_t> all;
  for (const auto& [id, port] : connecting_) all.push_back(port);
  for (const auto& [id, connection] : connections_) {
    if (connection.side == 0 && !connection.peer) all.push_back(connection.other->port());
  }
  return all;
}

std::vector<std::shared_ptr<Wire>> SimLinks::wires_to(const PeerNode& other) const {
  std::vector<std::shared_ptr<Wire>> all;
  for (const auto& [id, connection] : connections_) {
    if (connection.other == &other && connection.peer) all.push_back(connection.wire);
  }
  return all;
}

void SimLinks::on_pending_frame(const std::optional<protocol::LaneHello>& hello,
                                const std::optional<protocol::LaneCredential>& credential) {
  if (credential && !lets_in(*credential)) return;
  const ConnectionId id = core_.new_lane();
  strangers_.insert(id);
  link::Accepted accepted{received(id, hello), "a stranger"};
  if (credential) {
    accepted.proven = {credential->identity, hello ? hello->serial : 1, false};
    step(link::Proven{id, *accepted.proven});
  }
  step(accepted);
}

bool SimLinks::on_copied_introduction(size_t which) {
  if (introductions_.empty() || over_) return false;
  const protocol::LaneIntroduction& shown = introductions_[which % introductions_.size()];
  if (!core_.key_of(shown)) return true;
  const ConnectionId id = core_.new_lane();
  strangers_.insert(id);
  step(link::Proven{id, shown});
  later(protocol::kHelloTimeout, [this, id] {
    step(link::Failed{id, {Code::kSystem, "the handshake took too long", {}}, LinkFault::kOther});
    strangers_.erase(id);
  });
  return true;
}

bool SimLinks::break_link(PeerNode& other) {
  if (!linked(other)) return false;
  const auto wires = wires_to(other);
  const auto tell = [wires](PeerNode* here, PeerNode* there) {
    World& world = here->world();
    world.event_loop().after(world.control_delay(), [wires, here, there] {
      here->world().network().pass(there->port(), here->port(), [wires, here] {
        here->run([wires, here] {
          for (const auto& wire : wires) here->links().closed(wire, "connection reset");
        });
      });
    });
  };
  tell(&node_, &other);
  tell(&other, &node_);
  return true;
}

bool SimLinks::half_break_link(PeerNode& other, bool refuses) {
  if (!linked(other)) return false;
  const auto wires = wires_to(other);
  for (const auto& wire : wires) {
    wire->silent_end = true;
    wire->refuses = refuses;
  }
  later(node_.world().control_delay(), [this, wires] {
    for (const auto& wire : wires) closed(wire, "connection reset");
  });
  return true;
}

}  // namespace pccl::sim
