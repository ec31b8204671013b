#include "tests/sim/peer_node.h"

#include <algorithm>
#include <utility>

#include "csrc/ring/state_hash.h"

namespace pccl::sim {
namespace {

constexpr Duration kInboxMin = std::chrono::microseconds(1);
constexpr Duration kInboxMax = std::chrono::microseconds(200);
// As in the shell: how long a peer that could not be reached is left alone at most.
constexpr Duration kRetryMax = std::chrono::seconds(1);

// As in ShellLink: pings are answered by the data loop, and only the rest is the engine's.
class LaneSink : public net::FrameSink {
 public:
  LaneSink(ring::Port& port, net::FrameSink& engines, std::function<void(uint64_t)> on_pong)
      : port_(port), engines_(engines), on_pong_(std::move(on_pong)) {}
  void on_frame(const net::FrameHeader& header) override {
    if (header.type == net::FrameType::kPong) return on_pong_(header.value);
    if (header.type != net::FrameType::kPing) return engines_.on_frame(header);
    net::FrameHeader pong;
    pong.type = net::FrameType::kPong;
    pong.value = header.value;
    port_.send(pong);
  }
  std::span<std::byte> on_chunk(const net::FrameHeader& header) override {
    return engines_.on_chunk(header);
  }
  void on_piece(size_t at, size_t bytes) override { engines_.on_piece(at, bytes); }
  void on_chunk_end(bool valid) override { engines_.on_chunk_end(valid); }

 private:
  ring::Port& port_;
  net::FrameSink& engines_;
  const std::function<void(uint64_t)> on_pong_;
};

}  // namespace

PeerNode::PeerNode(World& world, std::string name, uint16_t port, peer::Options options)
    : world_(world),
      name_(std::move(name)),
      port_(port),
      group_(options.group),
      peer_timeout_(options.peer_timeout),
      core_(std::move(options)),
      engine_({.on_transferred =
                   [this](Epoch epoch, OpKey op) {
                     control([this, epoch, op] { step(peer::OpTransferred{epoch, op}); });
                   },
               .on_progressed =
                   [this](Epoch epoch, OpKey op, uint64_t finished) {
                     control([this, epoch, op, finished] {
                       step(peer::OpProgressed{epoch, op, finished});
                     });
                   },
               .on_agreed =
                   [this](Epoch epoch, OpKey op) {
                     control([this, epoch, op] { step(peer::OpAgreed{epoch, op}); });
                   },
               .on_drained =
                   [this](Epoch epoch, OpKey op) {
                     control([this, epoch, op] { step(peer::OpDrained{epoch, op}); });
                   },
               .on_fail_link =
                   [this](PeerId peer, const std::string& why) {
                     data([this, peer, why] { link_lost(peer, why); });
                   },
               .on_failed =
                   [this](Epoch epoch, OpKey op, const Status& why) {
                     control([this, epoch, op, why] { step(peer::OpFailed{epoch, op, why}); });
                   }}),
      to_control_(world.clockwork()),
      to_data_(world.clockwork()) {}

PeerNode::~PeerNode() = default;

void PeerNode::run(const std::function<void()>& what) {
  if (!alive_) return;
  if (stopped_) {
    backlog_.push_back(what);
  } else {
    what();
  }
}

void PeerNode::control(std::function<void()> what) {
  to_control_.post(inbox_delay(), [this, what = std::move(what)] { run(what); });
}

void PeerNode::data(std::function<void()> what) {
  const Duration delay = world_.random().duration(kInboxMin, world_.options().data_inbox_max);
  to_data_.post(delay + late(), [this, what = std::move(what)] { run(what); });
}

Duration PeerNode::late() {
  return late_max_ == Duration{0} ? late_max_ : world_.random().duration(Duration{0}, late_max_);
}

// Chance is asked in one order, whatever compiler.
Duration PeerNode::inbox_delay() {
  const Duration delay = world_.random().duration(kInboxMin, kInboxMax);
  return delay + late();
}

void PeerNode::call(peer::Event event) {
  control([this, event = std::move(event)] { step(event); });
}

void PeerNode::step(const peer::Event& event) {
  if (!alive_) return;
  peer::Effects effects;
  if (std::holds_alternative<peer::MasterSent>(event)) count_message();
  world_.stepping = this;
  core_.step(event, world_.clockwork().now() + clock_ahead_, effects);
  world_.stepping = nullptr;
  for (auto& effect : effects) perform(effect);
  arm();
}

void PeerNode::arm() {
  const auto deadline = core_.deadline();
  const uint64_t armed = ++timer_;
  if (!deadline || gone_) return;
  const Duration left = *deadline - (world_.clockwork().now() + clock_ahead_);
  world_.clockwork().after(std::max(left, Duration{0}) + late(), [this, armed] {
    run([this, armed] {
      if (armed == timer_) step(peer::TimePassed{});
    });
  });
}

void PeerNode::connection_closed(const std::shared_ptr<World::Connection>& which,
                                 const std::string& why) {
  if (connection_ != which) return;  // this side has closed it meanwhile
  connection_.reset();
  step(peer::MasterClosed{Status{Code::kSystem, why}});
}

void PeerNode::perform(peer::Effect& effect) {
  if (std::holds_alternative<peer::ConnectMaster>(effect)) {
    world_.connect(*this);
  } else if (std::holds_alternative<peer::CloseMaster>(effect)) {
    if (connection_) world_.close(std::exchange(connection_, nullptr), false, "closed by the peer");
  } else if (auto* send = std::get_if<peer::SendMaster>(&effect)) {
    if (connection_) world_.send_to_master(connection_, send->message);
    count_message();
  } else if (auto* listen = std::get_if<peer::Listen>(&effect)) {
    id_ = listen->self;
    arm_tick();
    Result<uint16_t> port = port_;
    if (cannot_listen) port = Status{Code::kSystem, "no port to listen on", {}};
    control([this, port] { step(peer::Listening{port}); });
  } else if (auto* dialling = std::get_if<peer::DialPeer>(&effect)) {
    data([this, what = dialling->dial] { dial(what); });
  } else if (auto* forget = std::get_if<peer::ForgetPeer>(&effect)) {
    data([this, peer = forget->peer] { drop_link(peer, true); });
  } else if (auto* begin = std::get_if<peer::BeginEpoch>(&effect)) {
    member_ = true;
    data([this, begin = *begin] { engine_.begin_epoch(begin.epoch, begin.peers); });
  } else if (auto* start = std::get_if<peer::StartOp>(&effect)) {
    start_op(*start);
  } else if (auto* end = std::get_if<peer::EndOp>(&effect)) {
    data([this, end = *end] { engine_.end(end); });
  } else if (auto* done = std::get_if<peer::SayDone>(&effect)) {
    data([this, op = done->op] { engine_.done(op); });
  } else if (auto* verifying = std::get_if<peer::VerifyState>(&effect)) {
    verify(*verifying);
  } else if (auto* finished = std::get_if<peer::FinishOp>(&effect)) {
    app_->on_op(*finished);
  } else if (auto* joint = std::get_if<peer::FinishJoint>(&effect)) {
    app_->on_joint(*joint);
  } else if (auto* renewed = std::get_if<peer::EpochRenewed>(&effect)) {
    app_->on_renewed(renewed->topology);
  } else if (auto* left = std::get_if<peer::Gone>(&effect)) {
    gone_ = true;
    app_->on_gone(left->why);
    data([this] {  // the process has no more use for its sockets
      while (!links_.empty()) drop_link(links_.begin()->first, true);
    });
  } else if (auto* log = std::get_if<peer::Log>(&effect)) {
    world_.note(name_, log->text);
  }
}

// Of a newcomer that is to die at a certain point of its joining.
void PeerNode::count_message() {
  if (messages_left_ == 0 || --messages_left_ > 0) return;
  world_.clockwork().after(Duration{0}, [this] {
    if (!member_) kill("killed while joining");
  });
}

void PeerNode::start_op(peer::StartOp& start) {
  ring::Memory memory;
  if (start.task.shape.pattern == ring::Pattern::kTransfer && !start.keys.empty()) {
    memory.spans = app_->state(start.handle, start.keys, start.task.shape.rank == 1);
    memory.save = false;
    if (start.task.shape.rank == 0 && world_.on_state_sent) world_.on_state_sent(*this);
  } else {
    memory = app_->memory(start.handle);
    if (start.start > 0) {
      memory.spans[0] = memory.spans[0].subspan(start.start * start.task.shape.element_bytes);
    }
  }
  memory.dtype = start.dtype;
  memory.reduce = start.reduce;
  memory.contributors = start.contributors;
  const Bug plant = world_.options().plant;
  if (plant == Bug::kNoRestore) memory.save = false;
  if (plant == Bug::kForeignSize && port_ == 1) ++memory.contributors;
  start.task.handle = start.handle;
  data([this, task = start.task, memory = std::move(memory)] { engine_.post(task, memory); });
}

void PeerNode::verify(const peer::VerifyState& verify) {
  Status status;
  const auto spans = app_->state(verify.handle, verify.keys, true);
  for (size_t i = 0; i < spans.size(); ++i) {
    if (ring::state_hash(spans[i].data(), spans[i].size()) == verify.hashes[i]) continue;
    status = Status{Code::kSharedState,
                    "entry " + std::to_string(verify.keys[i]) + " arrived with another hash"};
  }
  control([this, handle = verify.handle, status] { step(peer::StateVerified{handle, status}); });
}

// ---- Links ----

void PeerNode::dial(const protocol::Dial& dial) {
  const auto before = dialling_.find(dial.peer);
  const bool under_way = before != dialling_.end() && before->second.port == dial.port &&
                         attempts_[dial.peer] > dial.dead_serial;
  dialling_[dial.peer] = dial;
  const auto up = links_.find(dial.peer);
  if (up != links_.end() && up->second.wire->serial > dial.dead_serial) return tell_up(dial.peer);
  if (up != links_.end()) drop_link(dial.peer, false);
  if (!under_way) dial_again(dial.peer);
}

// A new attempt takes the place of the one under way.
void PeerNode::dial_again(PeerId peer) {
  if (!dialling_.contains(peer) || links_.contains(peer)) return;
  attempts_[peer] = ++serials_;
  connect_to(peer, serials_, peer_timeout_ / 2);
}

void PeerNode::connect_to(PeerId peer, uint32_t attempt, Duration left) {
  const auto found = dialling_.find(peer);
  if (found == dialling_.end() || attempts_[peer] != attempt) return;
  PeerNode* other = world_.by_port(found->second.port);
  const bool reachable = other != nullptr && other->alive_ && !other->unreachable &&
                         other->id_ == peer && !other->gone_ &&
                         world_.network().open_both_ways(port_, other->port_);
  if (reachable) return introduce(*other, attempt);
  if (left <= Duration{0})
    return dial_failed(peer, attempt, "connection timed out", LinkFault::kNoAnswer);
  const Duration pause = std::min(left, Network::kSynPause);
  world_.clockwork().after(pause, [this, peer, attempt, rest = left - pause] {
    run([this, peer, attempt, rest] { connect_to(peer, attempt, rest); });
  });
}

// Hello and its answer.
void PeerNode::introduce(PeerNode& other, uint32_t attempt) {
  auto wire = std::make_shared<Wire>(world_.clockwork(), world_.random(), world_.options().wire);
  wire->serial = attempt;
  const auto answered = [this, &other, wire] {
    world_.network().pass(other.port_, port_, [this, &other, wire] {
      run([this, &other, wire] { dial_answered(other, wire); });
    });
  };
  const auto arrived = [this, &other, wire, answered] {
    other.run([this, &other, wire, answered] {
      other.dialled_by(*this, wire);
      world_.clockwork().after(world_.control_delay(), answered);
    });
  };
  world_.clockwork().after(world_.control_delay(), [this, &other, arrived] {
    world_.network().pass(port_, other.port_, arrived);
  });
  world_.clockwork().after(protocol::kHelloTimeout, [this, peer = other.id_, attempt] {
    run([this, peer, attempt] {
      dial_failed(peer, attempt, "it did not introduce itself in time", LinkFault::kNoAnswer);
    });
  });
}

// As in the shell: who has a link keeps it, and finds out whether it lives.
void PeerNode::dialled_by(PeerNode& dialler, const std::shared_ptr<Wire>& wire) {
  wire->cut |= gone_ || !dialler.alive_;
  if (wire->cut) return;
  if (!links_.contains(dialler.id_)) return link_opened(dialler, wire, 1, false);
  wire->cut = true;
  probe(dialler.id_);
}

void PeerNode::dial_answered(PeerNode& other, const std::shared_ptr<Wire>& wire) {
  if (attempts_[other.id_] != wire->serial)
    return other.link_closed(*this, wire, "closed by " + name_);
  if (wire->cut)
    return dial_failed(other.id_, wire->serial, "closed by the other side", LinkFault::kOther);
  link_opened(other, wire, 0, true);
}

void PeerNode::dial_failed(PeerId peer, uint32_t attempt, const std::string& why, LinkFault fault) {
  if (attempts_[peer] != attempt) return;
  attempts_[peer] = 0;
  report({peer, protocol::LinkState::kUnreachable, why, 0, 0, fault});
  world_.clockwork().after(std::min(tick(), kRetryMax), [this, peer] {
    run([this, peer] {
      if (attempts_[peer] == 0) dial_again(peer);
    });
  });
}

void PeerNode::link_opened(PeerNode& other, const std::shared_ptr<Wire>& wire, int side,
                           bool dialled) {
  const PeerId peer = other.id_;
  if (dialled) attempts_[peer] = 0;
  if (links_.contains(peer)) drop_link(peer, false);
  Link& link = links_[peer];
  link.wire = wire;
  link.side = side;
  link.other = &other;
  add_lane(link, wire);
  if (!dialled) return;
  tell_up(peer);
  open_lanes(other, wire);
}

// The link to `other`, if `wire` is its first connection.
PeerNode::Link* PeerNode::link_on(PeerNode& other, const std::shared_ptr<Wire>& wire) {
  const auto at = links_.find(other.id_);
  return at != links_.end() && at->second.wire == wire ? &at->second : nullptr;
}

void PeerNode::add_lane(Link& link, const std::shared_ptr<Wire>& wire) {
  PeerNode& other = *link.other;
  ring::Port& port = wire->port(link.side);
  ring::Engine::Lane& lane = engine_.lane_up(other.id_, port);
  const auto on_pong = [this, peer = other.id_](uint64_t number) {
    last_pong_[peer] = std::max(last_pong_[peer], number);
  };
  link.lanes.push_back({wire, std::make_unique<LaneSink>(port, lane, on_pong)});
  const auto fail = [this, &other, own = std::weak_ptr(link.wire)](const std::string& why) {
    data([this, &other, own, why] {
      if (link_on(other, own.lock()) != nullptr) link_lost(other.id_, why);
    });
  };
  wire->attach(link.side,
               {.sink = link.lanes.back().sink.get(),
                .on_chunk_sent =
                    [this, peer = other.id_, &lane] {
                      lane.chunk_sent();
                      let_lanes_rest(peer);
                    },
                .on_bad_frame = [fail](Status why) { fail(why.message); },
                .stopped = [this] { return stopped_; },
                .cut_off = [this, &other] { return !world_.network().open(other.port_, port_); },
                .late = [this] { return late(); },
                .on_refused = [fail] { fail("connection reset"); }});
}

// Any but all of them, at any time.
void PeerNode::let_lanes_rest(PeerId peer) {
  const auto at = links_.find(peer);
  if (at == links_.end() || at->second.lanes.size() == 1 || !world_.random().once_in(10)) return;
  const uint64_t all = (uint64_t{1} << at->second.lanes.size()) - 1;
  engine_.rest(peer, world_.random().below(all));
}

// None, or a few more, at any time.
void PeerNode::open_lanes(PeerNode& other, const std::shared_ptr<Wire>& first) {
  const uint64_t lanes_max = world_.options().lanes_max;
  if (lanes_max == 1) return;
  for (uint64_t more = world_.random().between(0, lanes_max - 1); more > 0; --more) {
    auto wire = std::make_shared<Wire>(world_.clockwork(), world_.random(), world_.options().wire);
    wire->first = first;
    const auto answered = [this, &other, wire] {
      Link* const link = link_on(other, wire->first);
      if (link != nullptr) add_lane(*link, wire);
    };
    const auto arrived = [this, &other, wire, answered] {
      Link* const link = other.link_on(*this, wire->first);
      if (link == nullptr) return;
      other.add_lane(*link, wire);
      world_.clockwork().after(world_.control_delay(), [this, &other, answered] {
        world_.network().pass(other.port_, port_, [this, answered] { run(answered); });
      });
    };
    world_.clockwork().after(world_.control_delay(), [this, &other, arrived] {
      world_.network().pass(port_, other.port_, [&other, arrived] { other.run(arrived); });
    });
  }
}

void PeerNode::tell_up(PeerId peer) {
  report({peer, protocol::LinkState::kUp, "", links_.at(peer).wire->serial,
          world_.options().round_trip});
}

void PeerNode::report(const protocol::LinkReport& report) {
  control([this, report] { step(peer::LinkChanged{report}); });
}

// The connection to `other` ended by no will of ours: we hear of it.
void PeerNode::link_closed(PeerNode& other, const std::shared_ptr<Wire>& wire,
                           const std::string& why) {
  wire->cut = true;
  const auto heard = [this, peer = other.id_, why, wire] {
    run([this, peer, why, wire] {
      const auto link = links_.find(peer);
      if (link != links_.end() && link->second.wire == wire) link_lost(peer, why);
    });
  };
  world_.clockwork().after(world_.control_delay(), [this, from = other.port_, heard] {
    world_.network().pass(from, port_, heard);
  });
}

void PeerNode::link_lost(PeerId peer, const std::string& why) {
  const auto at = links_.find(peer);
  if (at == links_.end()) return;
  const uint32_t serial = at->second.wire->serial;
  drop_link(peer, false);
  report({peer, protocol::LinkState::kDown, why, serial});
}

void PeerNode::drop_link(PeerId peer, bool by_us) {
  if (by_us) dialling_.erase(peer);
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  const Link link = std::move(found->second);
  links_.erase(found);
  probes_.erase(peer);
  engine_.link_down(peer);
  for (const Lane& lane : link.lanes) lane.wire->detach(link.side);
  link.wire->cut = true;
  if (!link.wire->silent_end) link.other->link_closed(*this, link.wire, "closed by " + name_);
}

// ---- Silence ----

void PeerNode::arm_tick() {
  world_.clockwork().after(tick() + late(), [this] { run([this] { on_tick(); }); });
}

// However late it is, it counts once.
void PeerNode::on_tick() {
  if (gone_) return;
  arm_tick();
  std::vector<PeerId> silent;
  for (auto& [peer, link] : links_) {
    bool too_long = false;
    for (Lane& lane : link.lanes) {
      lane.silence.tick();
      if (lane.wire->take_heard(link.side)) lane.silence.heard();
      if (lane.silence.ping_due()) ping(link, lane);
      too_long |= lane.silence.too_long();
    }
    if (too_long) silent.push_back(peer);
  }
  for (const PeerId peer : silent) {
    link_lost(peer, "nothing was heard on it for " + text(tick() * protocol::kTicksPerLinkSilence));
  }
}

void PeerNode::ping(const Link& link, Lane& lane, uint64_t number) {
  net::FrameHeader header;
  header.type = net::FrameType::kPing;
  header.value = number;
  lane.wire->port(link.side).send(header);
  lane.silence.said();
}

// The peer dials again, so its end may be gone though nobody told ours.
void PeerNode::probe(PeerId peer) {
  Link& link = links_.at(peer);
  const protocol::Probe fresh(++probe_numbers_);
  if (!probes_.emplace(peer, fresh).second) return;
  ping(link, link.lanes.front(), fresh.number());
  look_later(peer, fresh.number());
}

void PeerNode::look_later(PeerId peer, uint64_t number) {
  world_.clockwork().after(std::min(tick(), kRetryMax / 4), [this, peer, number] {
    run([this, peer, number] {
      const auto at = probes_.find(peer);
      if (at == probes_.end() || at->second.number() != number) return;
      using Finding = protocol::Probe::Finding;
      const Finding finding = at->second.look(last_pong_[peer]);
      if (finding == Finding::kUnknown) return look_later(peer, number);
      probes_.erase(at);
      if (finding == Finding::kDead)
        link_lost(peer, "it does not answer on this link, and dials again");
    });
  });
}

// ---- Faults ----

void PeerNode::kill(const std::string& why) {
  if (!alive_) return;
  world_.note(name_, why);
  if (connection_) world_.close(connection_, false, "connection reset");
  for (const auto& [peer, link] : links_) {
    for (const Lane& lane : link.lanes) lane.wire->detach(link.side);
    link.other->link_closed(*this, link.wire, "connection reset");
  }
  alive_ = false;
}

void PeerNode::leave() {
  left_ = true;
  call(peer::LeaveCalled{});
}

void PeerNode::stop() {
  stopped_ = true;
  world_.note(name_, "stopped");
}

void PeerNode::go_on() {
  if (!stopped_) return;
  stopped_ = false;
  world_.note(name_, "goes on");
  while (!backlog_.empty() && alive_ && !stopped_) {
    const auto next = std::move(backlog_.front());
    backlog_.pop_front();
    next();
  }
  pump_links();
}

void PeerNode::pump_links() {
  for (const auto& [peer, link] : links_) {
    for (const Lane& lane : link.lanes) lane.wire->pump(link.side);
  }
}

void PeerNode::be_slow(Duration late_max) {
  late_max_ = late_max;
  world_.note(
      name_, late_max == Duration{0} ? "is no longer slow" : "is slow, by up to " + text(late_max));
}

void PeerNode::jump_clock(Duration ahead) {
  world_.note(name_, "its clock jumps ahead by " + text(ahead));
  clock_ahead_ += ahead;
  arm();
}

}  // namespace pccl::sim
