#include "tests/sim/world.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "csrc/net/keys.h"
#include "csrc/protocol/codec.h"
#include "master/epochs/decision_mac.h"
#include "master/operator/snapshot.h"
#include "master/run_view.h"
#include "master/runs/journal.h"
#include "master/topology/planner.h"
#include "tests/sim/peer_node.h"

namespace pccl::sim {

struct World::Connection {
  Connection(EventLoop& event_loop, PeerNode& of, uint32_t shown, master::ConnectionId named)
      : peer(of), token(shown), id(named), to_master(event_loop), to_peer(event_loop) {}
  PeerNode& peer;
  const uint32_t token;
  const master::ConnectionId id;
  Fifo to_master, to_peer;
  bool introduced = false;
  bool registered = false;  // or resumed: the master may make it dial others
  bool master_open = true;  // the master's end is open
  bool peer_open = true;    // the peer's end is open
  bool half_open = false;   // the master has dropped it, and the peer has not noticed
  bool admitted = false;    // by the gate, if there is one
  std::deque<protocol::Message> held = {};  // until then
};

World::World(uint64_t seed, WorldOptions options, EventLoop* clock)
    : options_(options),
      random_(seed),
      event_loop_(clock == nullptr ? own_event_loop_ : *clock),
      disk_(event_loop_, random_, options.disk_delay_min, options.disk_delay_max) {
  disk_.replace(master::journal::header());
  start_master();
}

namespace {

constexpr protocol::Key kDecisions{{4, 5, 6, 7}};

}  // namespace

// ---- The master ----

void World::start_master() {
  PCCL_ASSERT(!master_);
  auto replayed = master::journal::replay(disk_.content());
  if (!replayed.ok()) return note("master", "its journal " + replayed.status().message);
  master::Memory memory = std::move(replayed.value().memory);
  const auto apply = [&memory](const master::Entry& entry) { memory.apply(entry); };
  apply(master::Started{memory.incarnation + 1});
  if (!memory.runs.contains("sim"))
    apply(master::RunOpened{"sim", kRunId, {}, protocol::kSpoken.highest, kDecisions});
  disk_.replace(master::journal::compacted(memory));
  const master::RunRecord& run = memory.runs.at("sim");
  note("master", "starts, incarnation " + std::to_string(memory.incarnation));
  master_ = std::make_unique<master::MasterCore>(
      master::Options{"sim", run.run_id, memory.incarnation, options_.loopback_only,
                      options_.one_shot_bytes, run.version, seed_of(memory.incarnation),
                      run.decisions, options_.fixed_world, options_.shares},
      run);
  incarnation_ = memory.incarnation;
  step_master(master::TimePassed{});
}

// Each start of a master has another seed.
std::optional<protocol::Key> World::seed_of(uint32_t incarnation) const {
  if (!options_.secured) return std::nullopt;
  return protocol::Key{{incarnation, 1, 2, 3}};
}

std::optional<protocol::LaneCredential> World::credential(PeerId dialler, PeerId acceptor) {
  const std::optional<protocol::Key> seed = seed_of(incarnation_);
  if (!seed) return std::nullopt;
  constexpr uint64_t kOurNumbers = uint64_t{1} << 40;  // far from those of the master
  const protocol::LaneIdentity identity{dialler, acceptor, incarnation_,
                                        kOurNumbers + ++credentials_};
  const protocol::Key accepting = net::accepting_key(*seed, acceptor);
  return protocol::LaneCredential{identity, net::lane_key(accepting, kRunId, identity)};
}

void World::kill_master() {
  if (!master_) return;
  note("master", "killed");
  drop_master();
}

void World::end_master() {
  if (!master_) return;
  note("master", "is about to end");
  if (options_.plant == Bug::kHastyEnd) return say_hasty_farewell();
  master_ends_ = true;
  run_master([this] { step_master(master::Draining{}); });
}

// The planted bug: operations may be in flight.
void World::say_hasty_farewell() {
  const auto open = open_;
  for (const auto& [id, connection] : open) {
    send_to_peer(connection, protocol::Farewell{});
    close(connection, true, "closed by the master");
  }
  drop_master();
}

void World::drop_master() {
  master_.reset();
  master_paused_ = master_ends_ = false;
  master_backlog_.clear();
  ++master_life_;
  ++master_timer_;
  disk_.crash();
  while (!open_.empty()) {
    const auto connection = open_.begin()->second;
    open_.erase(open_.begin());
    connection->master_open = false;
    if (random_.once_in(2)) {
      cut(connection, "connection reset");  // what the master sent before does not arrive
    } else {
      connection->to_peer.post(control_delay(), [this, connection] {
        network_.pass(Network::kMaster, connection->peer.port(),
                      [this, connection] { cut(connection, "connection reset"); });
      });
    }
  }
}

void World::stop_master() {
  if (!master_ || master_paused_) return;
  note("master", "stopped");
  master_paused_ = true;
}

void World::master_goes_on() {
  if (!master_paused_) return;
  note("master", "goes on");
  master_paused_ = false;
  while (!master_backlog_.empty() && !master_paused_) {
    const auto next = std::move(master_backlog_.front());
    master_backlog_.pop_front();
    take_turn(next);
  }
}

void World::run_master(std::function<void()> what) {
  if (master_paused_) return master_backlog_.push_back(std::move(what));
  take_turn(what);
}

// The gate learns at the end of the turn which connections have closed in it.
void World::take_turn(const std::function<void()>& what) {
  ++turns_;
  what();
  while (turns_ == 1 && !closed_.empty()) {
    for (const master::ConnectionId id : std::exchange(closed_, {}))
      if (master_) gate_->closed(id);
  }
  --turns_;
}

void World::jump_master_clock(Duration ahead) {
  note("master", "its clock jumps ahead by " + text(ahead));
  master_clock_ahead_ = master_clock_ahead_ + ahead;
  if (master_) arm_master();
}

// At once: a search has a number of kicks, not a time.
void World::apply(master::PlanRing& effect) {
  const master::RingPlanned found{effect.group, effect.token,
                                  master::topology::fastest_plan(*effect.question)};
  event_loop_.after(Duration{0}, [this, found, life = master_life_] {
    if (life == master_life_) run_master([this, found] { step_master(found); });
  });
}

void World::apply(master::Persist& persist) {
  if (on_record) on_record(persist.record);
  Disk::Bytes frame;
  master::journal::append({master::RunRecorded{"sim", persist.record}}, frame);
  const auto then = [this, token = persist.token] {
    run_master([this, token] { step_master(master::Persisted{token}); });
  };
  if (options_.plant == Bug::kToldTooEarly) {
    event_loop_.after(Duration{0}, [this, then, life = master_life_] {
      if (life == master_life_) then();
    });
    // The disk is late, too: otherwise few seeds kill the master between the two.
    event_loop_.after(std::chrono::milliseconds(50), [this, frame, life = master_life_]() mutable {
      if (life == master_life_) disk_.write(std::move(frame), [] {});
    });
    return;
  }
  disk_.write(std::move(frame), then);
}

// Ends the peer's side of the connection, at once.
void World::cut(const std::shared_ptr<Connection>& connection, const std::string& why) {
  if (!connection->peer_open || !connection->peer.alive()) return;
  connection->peer_open = false;
  connection->peer.run([connection, why] { connection->peer.connection_closed(connection, why); });
}

World::~World() = default;

PeerNode& World::add_peer(const std::string& name, peer::Options options) {
  const auto port = static_cast<uint16_t>(peers_.size() + 1);
  options.run = "sim";
  options.name = name;
  options.master_text = "master";
  options.secured = options_.secured;
  peers_.push_back(std::make_unique<PeerNode>(*this, name, port, std::move(options)));
  return *peers_.back();
}

PeerNode* World::by_port(uint16_t port) {
  return port >= 1 && port <= peers_.size() ? peers_[port - 1].get() : nullptr;
}

void World::note(const std::string& who, const std::string& what) {
  if (on_note) on_note(who + " > " + what);
}

Duration World::control_delay() {
  return random_.duration(options_.control_delay_min, options_.control_delay_max);
}

// A token is proven by a further round trip.
void World::connect(PeerNode& peer, uint32_t token, Duration at_most) {
  const Duration delay = options_.secured ? control_delay() + 2 * control_delay() : control_delay();
  event_loop_.after(delay, [this, &peer, token, at_most] { try_to_connect(peer, token, at_most); });
}

void World::try_to_connect(PeerNode& peer, uint32_t token, Duration left) {
  if (!peer.alive()) return;
  if (network_.open_both_ways(peer.port(), Network::kMaster)) return connection_made(peer, token);
  if (left <= Duration{0}) {
    return peer.run([&peer] {
      peer.step(peer::MasterClosed{Status{Code::kSystem, "connection timed out"}});
    });
  }
  const Duration pause = std::min(left, Network::kSynPause);
  event_loop_.after(
      pause, [this, &peer, token, rest = left - pause] { try_to_connect(peer, token, rest); });
}

// While the master is paused, its machine accepts connections for it.
void World::connection_made(PeerNode& peer, uint32_t token) {
  if (!master_) {
    return peer.run([&peer] {
      peer.step(peer::MasterClosed{Status{Code::kSystem, "connection refused"}});
    });
  }
  if (unknown_tokens_.contains({peer.port(), token})) {
    return peer.run([&peer] {
      peer.step(peer::MasterClosed{{Code::kAuthentication, "the master does not know the token"}});
    });
  }
  auto connection =
      std::make_shared<Connection>(event_loop_, peer, token, master::ConnectionId{++connections_});
  open_[connection->id] = connection;
  peer.run([&peer, connection, elsewhere = options_.elsewhere] {
    peer.connection_ = connection;
    peer.step(peer::MasterConnected{.elsewhere = elsewhere});
  });
}

// Each peer has tokens of its own.
master::Holder World::holder(const PeerNode& peer, uint32_t token) const {
  const std::string later = token == 1 ? "" : "n" + std::to_string(token);
  const bool another = tokens_of_another_.contains({peer.port(), token});
  return {"simtoken" + std::to_string(peer.port()) + later, another ? "somebody" : peer.name()};
}

void World::revoke(PeerNode& peer) {
  note("master", "revokes the token of " + peer.name());
  for (uint32_t token = 1; token <= peer.last_token; ++token) forget_token(peer, token);
}

void World::revoke(PeerNode& peer, uint32_t token) {
  note("master", "revokes token " + std::to_string(token) + " of " + peer.name());
  forget_token(peer, token);
}

// The keyring of a later master has the token no longer, so it is not told.
void World::forget_token(const PeerNode& peer, uint32_t token) {
  PCCL_ASSERT(options_.secured);
  unknown_tokens_.insert({peer.port(), token});
  const master::Revoked revoked{{holder(peer, token).token}};
  if (master_) run_master([this, revoked] { step_master(revoked); });
}

void World::renew(PeerNode& peer, Renewal how) {
  PCCL_ASSERT(options_.secured);
  const std::pair<uint16_t, uint32_t> token{peer.port(), ++peer.last_token};
  note(peer.name(), "its file has token " + std::to_string(token.second));
  if (how == Renewal::kUnknown) unknown_tokens_.insert(token);
  if (how == Renewal::kOfAnother) tokens_of_another_.insert(token);
  peer.call(peer::TokenRead{token.second});
}

void World::learn(const PeerNode& peer) {
  note("master", "knows all tokens of " + peer.name());
  for (uint32_t token = 1; token <= peer.last_token; ++token)
    unknown_tokens_.erase({peer.port(), token});
}

void World::send_to_master(const std::shared_ptr<Connection>& connection,
                           const protocol::Message& message) {
  connection->to_master.post(control_delay(), [this, connection, message] {
    network_.pass(connection->peer.port(), Network::kMaster, [this, connection, message] {
      run_master([this, connection, message] {
        if (!connection->master_open) {
          if (connection->half_open) cut(connection, "connection reset");
          return;
        }
        if (options_.plant == Bug::kEarlyCommit) forge_last_done(connection, message);
        protocol::Message changed = message;
        plant_against_liars(connection, changed);
        arrived_at_master(connection, changed);
      });
    });
  });
}

void World::arrived_at_master(const std::shared_ptr<Connection>& connection,
                              const protocol::Message& message) {
  std::vector<std::byte> bytes;  // through the codec, as on a socket
  protocol::encode(message, bytes);
  auto decoded = protocol::decode(std::span(bytes).subspan(4));
  // Without a common version, the rest of a hello is not understood.
  const auto* hello = std::get_if<protocol::Hello>(&message);
  const bool foreign = hello != nullptr && !protocol::common(hello->versions, protocol::kSpoken);
  PCCL_ASSERT(decoded.ok() && (foreign || decoded.value() == message));
  if (waits_at_gate(connection, message)) return;
  if (!connection->introduced) introduce(connection);
  connection->registered |= std::holds_alternative<protocol::Register>(message);
  if (gate_ != nullptr && std::holds_alternative<protocol::Regroup>(message))
    return offered(connection, std::get<protocol::Regroup>(message));
  if (connection->master_open) step_master(master::Received{connection->id, decoded.value()});
}

void World::introduce(const std::shared_ptr<Connection>& connection) {
  connection->introduced = true;
  master::Accepted accepted{connection->id, "127.0.0.1", true};
  if (options_.secured) accepted.holder = holder(connection->peer, connection->token);
  step_master(accepted);
}

std::string World::snapshot() const {
  const master::WallClock clock{master_now(), 0};
  return master::snapshot(master_->view(), clock, 0, master::Detail::kHistory).dump();
}

// ---- The gate ----

// A member that resumes is known already.
bool World::waits_at_gate(const std::shared_ptr<Connection>& connection,
                          const protocol::Message& message) {
  if (gate_ == nullptr || connection->admitted) return false;
  const auto* hello = std::get_if<protocol::Hello>(&message);
  if (hello == nullptr && connection->held.empty()) {
    connection->admitted = true;
    return false;
  }
  if (std::holds_alternative<protocol::Pong>(message)) return true;
  connection->held.push_back(message);
  if (hello != nullptr) gate_->arrive(connection->id, *hello);
  return true;
}

void World::admit(master::ConnectionId id) {
  take_turn([this, connection = open_.at(id)] {
    connection->admitted = true;
    for (const protocol::Message& message : std::exchange(connection->held, {}))
      arrived_at_master(connection, message);
  });
}

void World::refuse(master::ConnectionId id, const protocol::Reject& why) {
  take_turn([this, &why, connection = open_.at(id)] {
    send_to_peer(connection, why);
    close(connection, true, "closed by the master");
  });
}

void World::ping(master::ConnectionId id) {
  const auto found = open_.find(id);
  if (found != open_.end() && !found->second->admitted)
    send_to_peer(found->second, protocol::Ping{});
}

void World::offered(const std::shared_ptr<Connection>& connection,
                    const protocol::Regroup& message) {
  const auto rank = master_->view().rank_of(connection->id);
  if (!connection->master_open || !rank) return;  // it was removed meanwhile
  take_turn([this, &message, connection, rank] { gate_->offer(connection->id, *rank, message); });
}

void World::answer(master::ConnectionId id, const protocol::Regrouped& answer) {
  if (const auto found = open_.find(id); found != open_.end()) send_to_peer(found->second, answer);
}

void World::regroup(const master::RegroupAgreed& agreed) {
  take_turn([this, &agreed] { step_master(agreed); });
}

void World::end_run(const protocol::Reject& why) {
  take_turn([this, &why] {
    for (const auto& [id, connection] : open_)
      if (connection->admitted) send_to_peer(connection, why);
    step_master(master::Ended{why.text});
  });
}

// The planted bugs: each undoes one of the rules that protect against a member that lies.
void World::plant_against_liars(const std::shared_ptr<Connection>& connection,
                                protocol::Message& message) {
  const bool lies = connection->peer.insider != nullptr;
  if (auto* answer = std::get_if<protocol::AbortAnswer>(&message);
      answer != nullptr && !lies && options_.plant == Bug::kHiddenReturn)
    if (answer->state == protocol::OpState::kReturned) answer->state = protocol::OpState::kDone;
  if (const auto* done = std::get_if<protocol::Done>(&message))
    done_by_.insert({connection->peer.port(), done->epoch, done->op});
  if (auto* resume = std::get_if<protocol::Resume>(&message);
      resume != nullptr && options_.plant == Bug::kAnyDecision) {
    uint64_t index = resume->stable_index;
    for (protocol::Verdict& verdict : resume->verdicts) {
      verdict.unacknowledged = static_cast<uint32_t>(index - resume->stable_index);
      verdict.mac = master::mac_of(kDecisions, resume->epoch, index++, verdict);
    }
  }
}

// The planted bugs: no peer is asked, or a peer that is done does not notice that it has answered.
bool World::answered_without_peer(const std::shared_ptr<Connection>& connection,
                                  const protocol::Message& message) {
  const auto* proposal = std::get_if<protocol::AbortProposal>(&message);
  const auto forge = [&](protocol::OpState state) {
    send_to_master(connection, protocol::AbortAnswer{proposal->epoch, proposal->op, state});
    return true;
  };
  if (proposal == nullptr) return false;
  if (options_.plant == Bug::kUnasked) return forge(protocol::OpState::kNotDone);
  if (options_.plant != Bug::kUnbound) return false;
  if (!done_by_.contains({connection->peer.port(), proposal->epoch, proposal->op})) return false;
  return forge(protocol::OpState::kDone);
}

// The planted bug: when all members but one have reported an operation done, the master receives a
// forged report of the last one.
void World::forge_last_done(const std::shared_ptr<Connection>& connection,
                            const protocol::Message& message) {
  const auto* done = std::get_if<protocol::Done>(&message);
  if (done == nullptr) return;
  auto& who = done_[{done->epoch, done->op}];
  who.push_back(connection);
  std::vector<std::shared_ptr<Connection>> missing;
  for (const auto& [id, other] : open_) {
    if (other->master_open && std::find(who.begin(), who.end(), other) == who.end())
      missing.push_back(other);
  }
  if (missing.size() == 1) arrived_at_master(missing[0], protocol::Done{done->epoch, done->op, 0});
}

void World::step_master(const master::Event& event) {
  if (!master_) return;
  master::Effects effects;
  master_->step(event, master_now(), effects);
  master_->check();
  for (auto& effect : effects) std::visit([this](auto& what) { apply(what); }, effect);
  if (gate_ != nullptr && !begun_ && master_->view().is_founded()) {
    begun_ = true;
    gate_->begun();
  }
  if (master_ends_ && !std::holds_alternative<master::Draining>(event))
    return step_master(master::Draining{});
  if (!master_ends_ || !master_->view().is_settled()) return arm_master();
  note("master", "has ended");
  drop_master();
}

void World::apply(master::Send& effect) {
  const auto found = open_.find(effect.connection);
  if (found == open_.end()) return;
  const auto connection = found->second;
  const bool lost = options_.plant == Bug::kLostAnswer && random_.once_in(50) &&
                    std::holds_alternative<protocol::Answer>(effect.message);
  if (lost) return;
  send_to_peer(connection, effect.message);
  const auto* dial = std::get_if<protocol::Dial>(&effect.message);
  if (dial != nullptr && options_.both_dial && random_.once_in(2))
    have_dialled_back(connection, *dial);
}

void World::apply(master::Close& effect) {
  const auto found = open_.find(effect.connection);
  if (found != open_.end()) close(found->second, true, "closed by the master");
}

void World::send_to_peer(const std::shared_ptr<Connection>& connection,
                         const protocol::Message& message) {
  connection->registered |= std::holds_alternative<protocol::Resumed>(message);
  connection->to_peer.post(control_delay(), [this, connection, message] {
    network_.pass(Network::kMaster, connection->peer.port(), [this, connection, message] {
      connection->peer.run([this, connection, message] {
        if (answered_without_peer(connection, message)) return;
        if (connection->peer_open) connection->peer.step(peer::MasterSent{message});
      });
    });
  });
}

void World::have_dialled_back(const std::shared_ptr<Connection>& dialler,
                              const protocol::Dial& dial) {
  const PeerNode& peer = dialler->peer;
  if (!peer.id()) return;  // its Welcome is under way
  // The peer has registered anew, and the master does not know yet that this connection is over.
  if (!dialler->peer_open) return;
  for (const auto& [id, other] : open_) {
    if (other->peer.id() != dial.peer || !other->registered) continue;
    const auto [host, port, others] = peer.where();
    send_to_peer(other, protocol::Dial{peer.id(), host, port, dial.dead_serial, others,
                                       credential(other->peer.id(), peer.id())});
  }
}

void World::arm_master() {
  const auto deadline = master_->deadline();
  const uint64_t armed = ++master_timer_;
  if (!deadline) return;
  const Duration left = std::max(Duration{0}, *deadline - master_now());
  event_loop_.after(left, [this, armed] {
    run_master([this, armed] {
      if (armed == master_timer_) step_master(master::TimePassed{});
    });
  });
}

// Data that was sent before still arrives. Then the other side learns of the end.
void World::close(std::shared_ptr<Connection> connection, bool by_master, const std::string& why) {
  if (by_master) {
    connection->master_open = false;
    open_.erase(connection->id);
    if (gate_ != nullptr) closed_.push_back(connection->id);
    connection->to_peer.post(control_delay(), [this, connection, why] {
      network_.pass(Network::kMaster, connection->peer.port(),
                    [this, connection, why] { cut(connection, why); });
    });
    return;
  }
  connection->peer_open = false;
  connection->to_master.post(control_delay(), [this, connection, why] {
    network_.pass(connection->peer.port(), Network::kMaster,
                  [this, connection, why] { peer_gone(connection, why); });
  });
}

// Ends the master's side of the connection.
void World::peer_gone(const std::shared_ptr<Connection>& connection, const std::string& why) {
  run_master([this, connection, why] {
    if (!connection->master_open) return;
    connection->master_open = false;
    open_.erase(connection->id);
    if (gate_ != nullptr) closed_.push_back(connection->id);
    if (connection->introduced) step_master(master::Closed{connection->id, why});
  });
}

bool World::break_master_connection(PeerNode& peer) {
  const auto connection = peer.connection_;
  if (!connection) return false;
  note("network", "breaks the connection between " + peer.name() + " and the master");
  cut(connection, "connection reset");
  event_loop_.after(control_delay(),
                    [this, connection] { peer_gone(connection, "connection reset"); });
  return true;
}

bool World::half_break_master_connection(PeerNode& peer, bool master_hears) {
  const auto connection = peer.connection_;
  if (!connection) return false;
  note("network", "breaks the connection between " + peer.name() + " and the master; only " +
                      (master_hears ? "the master" : peer.name()) + " hears of it");
  connection->half_open = master_hears;
  master_hears ? peer_gone(connection, "connection reset") : cut(connection, "connection reset");
  return true;
}

void World::block(Network::Host from, Network::Host to) {
  const auto name = [this](Network::Host host) {
    return host == Network::kMaster ? "the master" : by_port(host)->name();
  };
  note("network", "nothing from " + name(from) + " reaches " + name(to));
  network_.block(from, to);
}

void World::lift(Network::Host from, Network::Host to) {
  network_.lift(from, to);
  for (const Network::Host host : {from, to}) {
    if (PeerNode* peer = by_port(host)) peer->links().pump();
  }
  if (network_.open(from, to)) note("network", "a way is open again");
}

void World::narrow(Network::Host from, Network::Host to, size_t width) {
  note("network", "packets over " + std::to_string(width) + " bytes from " + by_port(from)->name() +
                      " to " + by_port(to)->name() + " vanish");
  network_.narrow(from, to, width);
}

void World::widen(Network::Host from, Network::Host to) {
  network_.widen(from, to);
  by_port(to)->links().pump();
  note("network", "a way carries large packets again");
}

bool World::break_link(PeerNode& a, PeerNode& b) {
  if (!a.links().linked(b)) return false;
  note("network", "breaks the link between " + a.name() + " and " + b.name());
  return a.links().break_link(b);
}

bool World::half_break_link(PeerNode& a, PeerNode& b, bool refuses) {
  if (!a.links().linked(b)) return false;
  note("network", "breaks the link between " + a.name() + " and " + b.name() + "; only " +
                      a.name() + " hears of it");
  return a.links().half_break_link(b, refuses);
}

}  // namespace pccl::sim
