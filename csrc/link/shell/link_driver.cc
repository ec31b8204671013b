#include "csrc/link/shell/link_driver.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/keys.h"
#include "csrc/protocol/limits.h"

namespace pccl::link {
namespace {

// Room for pending connections of all members at once. Honest peers send their hello within a round
// trip, so the oldest connection is closed first.
constexpr size_t kPendingMax = protocol::kMembersMax + size_t{3} * protocol::kLanesMax;
// At most this number of connections from one network are pending. All members may share one
// address, and two of them open all their lanes at once.
constexpr size_t kPendingPerNetworkMax = protocol::kMembersMax + size_t{2} * protocol::kLanesMax;
// Limit of pending connections when the application has few descriptors left. A link that is needed
// can still be made; pending connections hold no descriptor for long.
constexpr size_t kPendingWhenScarce = 8;

// Returns the largest number of lanes of a link: a sixteenth of the descriptors that this process
// may open. Further lanes only make a link faster, and the other descriptors are for the
// application. The usual 1,024 descriptors allow all lanes.
uint32_t lanes_affordable() {
  return static_cast<uint32_t>(
      std::clamp<size_t>(net::descriptors_max() / 16, 1, protocol::kLanesMax));
}

}  // namespace

LinkDriver::LinkDriver(DriverOptions options, Callbacks callbacks, net::LoopShare& loop,
                       LaneUser& user)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      lanes_max_(lanes_affordable()),
      loop_(loop),
      user_(user),
      core_(
          {.wan_rtt_min = options_.wan_rtt_min, .lanes = options_.lanes, .lanes_max = lanes_max_}),
      limits_(kComplete + 1, net::PendingConnections(kPendingPerNetworkMax)) {
  if (options_.lanes <= lanes_max_) return;
  callbacks_.on_warning("PCCL_LANES is " + std::to_string(options_.lanes) +
                        ", but this process may have " + std::to_string(net::descriptors_max()) +
                        " files open, so that " + std::to_string(lanes_max_) +
                        " connections to a neighbour are made: raise it (ulimit -n)");
}

LinkDriver::~LinkDriver() {
  for (const auto& [id, lane] : lanes_) lane->close();
}

// ---- Events ----

void LinkDriver::listen(const std::string& host) {
  loop_.assert_on_loop();
  PCCL_ASSERT(listener_ == nullptr);
  Result<std::unique_ptr<net::Listener>> opened = Status{Code::kSystem, "no port to try", {}};
  for (uint32_t port = options_.port_first; port <= options_.port_last; ++port) {
    opened = net::Listener::open(
        loop_.loop(), {host, static_cast<uint16_t>(port)},
        [this](net::Socket socket) { accepted(std::move(socket)); }, callbacks_.on_warning);
    if (opened.ok()) break;
  }
  if (!opened.ok() && options_.port_last > 0) {
    const std::string range =
        std::to_string(options_.port_first) + "-" + std::to_string(options_.port_last);
    const std::string& why = opened.status().message;
    opened = Status{Code::kSystem, why + " (of PCCL_PORT_RANGE " + range + " none is free)", {}};
  }
  if (!opened.ok()) return callbacks_.on_event(Listening{opened.status()});
  listener_ = std::move(opened.value());
  timer_ = std::make_unique<net::Timer>(loop_.loop(), [this] { step(TimePassed{}); });
  ticks_ = std::make_unique<net::Timer>(loop_.loop(), [this] { on_tick(); });
  ticks_->arm(monotonic_now() + core_.beat());
  callbacks_.on_event(Listening{
      listener_->port(), host.empty() ? net::interface_hosts() : std::vector<std::string>{}});
}

void LinkDriver::accept_as(Identity identity) {
  loop_.assert_on_loop();
  PCCL_ASSERT(!identified_);
  identity.machine = net::machine_id();
  core_.set_identity(identity);
  identified_ = true;
  if (ticks_ != nullptr) ticks_->arm(monotonic_now() + core_.beat());
  for (auto at = pending_.begin(); at != pending_.end();) receive((at++)->first);
}

void LinkDriver::accepted(net::Socket socket) {
  const std::string address = socket.peer_host();
  if (limits_[kNoProof].full(address)) return;
  const bool scarce = net::is_scarce(socket.fd(), kPendingWhenScarce);
  const ConnectionId id = core_.new_lane();
  limits_[kNoProof].add(id.value, address, monotonic_now());
  pending_.try_emplace(id, Pending{address, std::move(socket)});
  if (identified_) receive(id);
  close_excess(scarce ? kPendingWhenScarce : net::pending_max(kPendingMax));
}

void LinkDriver::receive(ConnectionId id) {
  Pending& pending = pending_.at(id);
  if (!core_.secured()) return add_lane(id, std::move(pending.socket), false);
  const Instant now = monotonic_now();
  if (!handshakes_.take(pending.address, now)) return remove_lane(id);
  const Instant by = now + protocol::kHelloTimeout;
  add_lane(id, net::Channel(std::move(pending.socket), acceptor(), by), false);
}

// `room`: the largest number of pending connections without a proof.
void LinkDriver::close_excess(size_t room) {
  for (net::PendingConnections& limit : limits_) {
    for (const uint64_t id : limit.take_excess(room, monotonic_now()))
      step(Failed{{id}, {Code::kSystem, "no hello in time, or too many are pending", {}}});
    room = net::pending_max(kPendingMax);
  }
}

void LinkDriver::advance(ConnectionId id, Proof proof) {
  Pending& pending = pending_.at(id);
  limits_[pending.proof].remove(id.value);
  limits_[proof].add(id.value, pending.address, monotonic_now());
  pending.proof = proof;
}

// Somebody may have captured a ClientHello with a proof, and can send it from many addresses. So
// these connections have the same limits as those that have proven nothing.
void LinkDriver::proven(ConnectionId id) {
  if (!pending_.contains(id)) return;  // this peer has dialled it
  advance(id, kPossibleCopy);
  step(Proven{id, *net::decode_lane_introduction(lanes_.at(id)->identity())});
  close_excess(net::pending_max(kPendingMax));
}

net::Tls LinkDriver::acceptor() const {
  return net::Tls::accept([this](std::string_view shown) -> std::optional<net::Key> {
    const auto introduction = net::decode_lane_introduction(shown);
    const auto key = introduction ? core_.key_of(*introduction) : std::nullopt;
    return key ? std::optional(net::Key(*key)) : std::nullopt;
  });
}

void LinkDriver::dialled(const Connect& connect, net::Socket socket) {
  if (connect.credential) {
    dialled_handshakes_[connect.lane] = {*connect.credential, std::move(socket)};
  } else {
    add_lane(connect.lane, std::move(socket), true);
  }
  step(Connected{connect.lane});
}

// The hello follows when the handshake is complete. Before that, the introduction carries a part of
// the hello.
void LinkDriver::shake_hands(const SendHello& send) {
  Dialled& own = dialled_handshakes_.at(send.lane);
  own.hello = send.hello;
  const protocol::LaneIntroduction introduction{own.credential.identity, send.hello.serial,
                                                send.hello.further};
  Result<net::Tls> tls = net::Tls::dial(net::encode(introduction), net::Key(own.credential.key));
  if (!tls.ok()) return step(Failed{send.lane, tls.status(), LinkFault::kOther});
  // The core waits for the answer to the hello, and gives up first.
  const Instant by = monotonic_now() + 2 * protocol::kHelloTimeout;
  net::Channel channel(std::move(*own.socket), std::move(tls.value()), by);
  own.socket.reset();
  add_lane(send.lane, std::move(channel), true);
}

void LinkDriver::add_lane(ConnectionId id, net::Channel channel, bool dialled) {
  lanes_[id] = std::make_unique<LaneConnection>(
      loop_.loop(), std::move(channel), dialled,
      LaneConnection::Callbacks{.on_hello = [this, id](const auto& hello) { greeted(id, hello); },
                                .on_pong =
                                    [this, id](uint64_t number) {
                                      step(PongReceived{id, number});
                                    },
                                .on_failed =
                                    [this, id](const Status& why, LinkFault fault) {
                                      step(Failed{id, why, fault});
                                    },
                                .on_proven = [this, id] { proven(id); },
                                .on_established = [this, id] { established(id); }});
}

void LinkDriver::established(ConnectionId id) {
  const auto own = dialled_handshakes_.extract(id);
  if (own) return lanes_.at(id)->send_hello(false, own.mapped().hello);
  advance(id, kComplete);
  close_excess(net::pending_max(kPendingMax));
}

void LinkDriver::greeted(ConnectionId id, const std::optional<protocol::LaneHello>& hello) {
  const LaneConnection& lane = *lanes_.at(id);
  const HelloReceived first{id, hello, lane.path().least};
  const auto address = forget_pending(id);
  if (!address) return step(first);
  step(Accepted{first, *address, net::decode_lane_introduction(lane.identity())});
}

// Returns the address of the other end, if the connection was pending.
std::optional<std::string> LinkDriver::forget_pending(ConnectionId id) {
  const auto pending = pending_.extract(id);
  if (!pending) return std::nullopt;
  limits_[pending.mapped().proof].remove(id.value);
  return pending.mapped().address;
}

void LinkDriver::remove_lane(ConnectionId id) {
  dialled_handshakes_.erase(id);
  forget_pending(id);
  const auto lane = lanes_.find(id);
  if (lane == lanes_.end()) return;
  lane->second->close();
  if (deferred_.empty()) loop_.post([this] { deferred_.clear(); });
  deferred_.push_back(std::move(lane->second));
  lanes_.erase(lane);
}

// A late tick counts as one tick: input that has arrived meanwhile is read before the next tick.
void LinkDriver::on_tick() {
  ticks_->arm(monotonic_now() + core_.beat());
  close_excess(net::pending_max(kPendingMax));
  Tick tick;
  for (const auto& [id, lane] : lanes_) {
    if (lane->take_received()) tick.received.push_back(id);
    const auto progress = lane->progress();
    if (progress) tick.progress.push_back({id, progress->segment, progress->arrived});
  }
  step(tick);
}

// ---- Effects ----

void LinkDriver::step(const Event& event) {
  loop_.assert_on_loop();
  waiting_.push_back(event);
  if (stepping_) return;
  stepping_ = true;
  while (!waiting_.empty()) {
    const Event next = std::move(waiting_.front());
    waiting_.pop_front();
    Effects effects;
    core_.step(next, monotonic_now(), effects);
    for (const Effect& effect : effects)
      std::visit([this](const auto& what) { perform(what); }, effect);
    // This lane has ended by itself, and the core never mentions it again.
    if (const auto* failed = std::get_if<Failed>(&next)) remove_lane(failed->lane);
  }
  stepping_ = false;
  if (timer_ == nullptr) return;
  const auto deadline = core_.deadline();
  deadline ? timer_->arm(*deadline) : timer_->disarm();
}

void LinkDriver::perform(const Connect& connect) {
  const auto connected = [this, connect](Result<net::Socket> result) {
    const auto own = connectors_.extract(connect.lane);  // the Connector lives until this returns
    if (!result.ok())
      return step(Refused{connect.lane, result.status().message, own.mapped()->fault()});
    dialled(connect, std::move(result.value()));
  };
  connectors_[connect.lane] = std::make_unique<net::Connector>(
      loop_.loop(), connect.to, connect.timeout, connected, connect.segment);
}

void LinkDriver::perform(const SmallerHelped& helped) {
  callbacks_.on_warning(
      "large packets did not arrive between " + lanes_.at(helped.lane)->ends() +
      ", smaller ones do (a router drops them and says nothing): from now on packets carry " +
      std::to_string(helped.segment) + " bytes at most, which costs some speed");
}

void LinkDriver::perform(const NarrowPathGone& gone) {
  callbacks_.on_warning("peer " + text(gone.peer) +
                        ", at which only small packets arrived, is gone, and so is that limit");
}

void LinkDriver::perform(const SendHello& send) {
  if (dialled_handshakes_.contains(send.lane)) return shake_hands(send);
  LaneConnection& lane = *lanes_.at(send.lane);
  lane.send_hello(send.answer, send.hello);
  if (pending_.contains(send.lane)) lane.open_early(user_, send.hello.other);
}

void LinkDriver::perform(const SendPing& ping) {
  net::FrameHeader header;
  header.type = net::FrameType::kPing;
  header.value = ping.number;
  lanes_.at(ping.lane)->send(header);
}

void LinkDriver::perform(const Close& close) {
  connectors_.erase(close.lane);
  remove_lane(close.lane);
}

void LinkDriver::perform(const LaneUp& up) {
  LaneSet& link = links_[up.peer];
  LaneConnection& lane = *lanes_.at(up.lane);
  if (!up.further && (up.wan || !up.same_machine))
    link.monitor.emplace(up.rtt, up.lanes_at_first, up.lanes_fixed || !up.wan);
  link.lanes.push_back(up.lane);
  carry(link, lane, up);
  lane.join(user_, up.peer, up.same_machine);
  if (up.further && up.wan && link.monitor) user_.set_inactive(up.peer, link.monitor->inactive());
}

void LinkDriver::perform(const LinkDown& down) {
  links_.erase(down.peer);
  user_.link_down(down.peer);
}

// Sets up a lane for its path, and adds it to the monitor of its link, if there is one. Lanes on a
// local path are always active.
void LinkDriver::carry(LaneSet& link, LaneConnection& lane, const LaneUp& up) {
  const std::string refusal =
      lane.tune(up.wan ? net::PathClass::kWan : net::PathClass::kLocal, options_.congestion);
  if (!refusal.empty()) callbacks_.on_warning(refusal);
  lane.set_contended(neighbours_.size() > 1);
  if (!link.monitor) return;
  link.monitor->add(lane);
  lane.watch([this, &link, peer = up.peer, wan = up.wan](const LaneConnection& sent) {
    if (link.monitor->chunk_sent(sent, monotonic_now())) interval_over(peer, link, wan);
  });
}

void LinkDriver::interval_over(PeerId peer, LaneSet& link, bool wan) {
  const uint64_t rate = link.monitor->rate();
  if (std::exchange(link.rate, rate) != rate) callbacks_.on_event(RateMeasured{{peer, rate}});
  if (!wan) return limit_unsent(link);
  step(LanesLearnt{peer, link.monitor->lanes_wanted()});
  user_.set_inactive(peer, link.monitor->inactive());
}

void LinkDriver::limit_unsent(const LaneSet& link) {
  const uint64_t bytes = link.monitor->unsent_max();
  if (bytes == 0) return;
  for (const ConnectionId id : link.lanes) lanes_.at(id)->limit_unsent(bytes);
}

void LinkDriver::set_neighbours(std::vector<PeerId> neighbours) {
  loop_.assert_on_loop();
  neighbours_ = std::move(neighbours);
  step(NeighboursKnown{neighbours_});
  for (const PeerId peer : neighbours_) {
    const auto at = links_.find(peer);
    if (at == links_.end()) continue;
    for (const ConnectionId id : at->second.lanes)
      lanes_.at(id)->set_contended(neighbours_.size() > 1);
  }
}

std::vector<LinkCounters> LinkDriver::counters() const {
  loop_.assert_on_loop();
  std::vector<LinkCounters> counters;
  for (const auto& [peer, seen] : core_.links()) {
    LinkCounters& sum = counters.emplace_back();
    sum.peer = peer;
    sum.serial = seen.serial;
    sum.lanes = static_cast<uint32_t>(seen.lanes.size());
    const auto& monitor = links_.at(peer).monitor;
    const protocol::LaneBits inactive = monitor ? monitor->inactive() : 0;
    sum.lanes_used = sum.lanes - static_cast<uint32_t>(std::popcount(inactive));
    sum.rtt = seen.rtt;
    sum.rate = monitor ? monitor->rate() : 0;
    for (const ConnectionId id : seen.lanes) {
      const net::Lane::Counters one = lanes_.at(id)->counters();
      sum.bytes_sent += one.bytes_sent;
      sum.bytes_received += one.bytes_received;
      sum.send_calls += one.send_calls;
      sum.receive_calls += one.receive_calls;
      sum.segments_again += lanes_.at(id)->path().segments_again;
    }
  }
  return counters;
}

}  // namespace pccl::link
