#include "tests/sim/peer_node.h"

#include <algorithm>
#include <utility>

#include "csrc/peer/arrange.h"
#include "csrc/peer/link_probe.h"

namespace pccl::sim {
namespace {

constexpr Duration kInboxMin = std::chrono::microseconds(1);
constexpr Duration kInboxMax = std::chrono::microseconds(200);
constexpr Duration kLingerTime = std::chrono::seconds(2);  // of a real process
// Each peer wants a random number of lanes.
uint32_t some_lanes(World& world) {
  const uint64_t most = world.options().lanes_max;
  return most == 1 ? 1 : static_cast<uint32_t>(world.random().between(1, most));
}

// From 1 to 32 MB a second: with an RTT of 50 ms, some of these networks are for the direct
// pattern, and in some it is faster for small tensors only. It draws no number of the world, whose
// later ones stay as they are.
protocol::LinkRate some_rate(uint64_t seed, uint16_t port, const protocol::LinkReport& up) {
  Random random(seed ^ port * 0x9a7e5u ^ up.serial * 0x51e5u);
  return {up.peer, (uint64_t{1'000'000} << random.below(6)) + random.below(1000)};
}

}  // namespace

PeerNode::PeerNode(World& world, std::string name, uint16_t port, peer::Options options)
    : world_(world),
      name_(std::move(name)),
      port_(port),
      group_(options.group),
      core_(std::move(options)),
      engine_({.on_event =
                   [this](ring::DataEvent event) {
                     std::visit([this](auto& what) { control([this, what] { step(what); }); },
                                event);
                   },
               .on_fail_link =
                   [this](PeerId peer, const std::string& why) {
                     data([this, peer, why] { links_.step(link::Suspected{peer, why}); });
                   }}),
      links_(*this, engine_,
             {.lanes = some_lanes(world),
              .lanes_max = static_cast<uint32_t>(world.options().lanes_max)},
             [this](const protocol::LinkReport& report) {
               control([this, report] {
                 step(peer::LinkChanged{report});
                 if (world_.options().rates && report.state == protocol::LinkState::kUp)
                   step(peer::RateMeasured{some_rate(world_.options().seed, port_, report)});
               });
             }),
      to_control_(world.event_loop()),
      to_data_(world.event_loop()) {
  if (!world_.options().devices) return;
  const auto on_staged = [this](const peer::OpStaged& staged) {
    control([this, staged] { step(staged); });
  };
  const auto on_finished = [this](const peer::FinishOp& result) {
    if (alive_) app_->on_op(result);
  };
  const auto on_violation = [this](const std::string& text) {
    world_.on_violation(name_ + ": " + text);
  };
  device_ = std::make_unique<Device>(world_.event_loop(), world_.options().seed ^ port_ * 0x9e37u,
                                     Device::Callbacks{on_staged, on_finished, on_violation});
}

PeerNode::~PeerNode() = default;

void PeerNode::run(const std::function<void()>& what) {
  if (!alive_) return;
  if (paused_) {
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
  to_data_.post(delay + late(), [this, what = std::move(what)] {
    run(what);
    engine_.check();
  });
}

Duration PeerNode::late() {
  return late_max_ == Duration{0} ? late_max_ : world_.random().duration(Duration{0}, late_max_);
}

// Two statements: the random numbers are drawn in the same order with every compiler.
Duration PeerNode::inbox_delay() {
  const Duration delay = world_.random().duration(kInboxMin, kInboxMax);
  return delay + late();
}

void PeerNode::call(peer::Event event) {
  auto* const called = std::get_if<peer::OpCalled>(&event);
  if (called != nullptr && device_ != nullptr && called->request.kind != protocol::OpKind::kBarrier)
    device_->called(called->request, app_->memory(called->request.handle));
  control([this, event = std::move(event)] { step(event); });
}

void PeerNode::step(const peer::Event& event) {
  if (!alive_) return;
  peer::Effects effects;
  if (const auto* sent = std::get_if<peer::MasterSent>(&event)) {
    count_message();
    dismissed_ |= std::holds_alternative<protocol::Farewell>(sent->message);
  }
  if (const auto* called = std::get_if<peer::OpCalled>(&event)) {
    in_flight_.insert(called->request.handle);
    app_->on_called(called->request.handle, fetches_);
  }
  if (std::holds_alternative<peer::JointConcluded>(event)) fetches_ = false;
  world_.stepping = this;
  core_.step(event, clock(), effects);
  core_.check();
  world_.stepping = nullptr;
  for (auto& effect : effects) std::visit([this](auto& what) { apply(what); }, effect);
  flush_or_hold();
  arm();
}

void PeerNode::flush_or_hold() {
  outbox_.check();
  if (outbox_.empty()) return;
  if (!connection_ || outbox_.due(clock())) return flush();
  const Duration left = *outbox_.deadline() - clock();
  world_.event_loop().after(std::max(left, Duration{0}) + late(), [this] {
    run([this] {
      if (outbox_.due(clock())) flush();
    });
  });
}

void PeerNode::flush() {
  for (const protocol::Message& message : outbox_.take()) {
    if (connection_) world_.send_to_master(connection_, message);
    count_message();
  }
}

void PeerNode::arm() {
  const auto deadline = core_.deadline();
  const uint64_t armed = ++timer_;
  if (!deadline || gone_) return;
  const Duration left = *deadline - clock();
  world_.event_loop().after(std::max(left, Duration{0}) + late(), [this, armed] {
    run([this, armed] {
      if (armed == timer_) step(peer::TimePassed{});
    });
  });
}

void PeerNode::connection_closed(const std::shared_ptr<World::Connection>& which,
                                 const std::string& why) {
  if (connection_ != which) return;  // this end has closed it meanwhile
  connection_.reset();
  step(peer::MasterClosed{Status{Code::kSystem, why}});
}

void PeerNode::apply(peer::ConnectMaster& effect) {
  world_.connect(*this, effect.token, effect.at_most);
}

void PeerNode::apply(peer::CloseMaster&) {
  flush();
  if (connection_) world_.close(std::exchange(connection_, nullptr), false, "closed by the peer");
}

void PeerNode::apply(peer::SendMaster& effect) {
  auto* hello = std::get_if<protocol::Hello>(&effect.message);
  const auto later = static_cast<uint16_t>(protocol::kSpoken.highest + 1);
  if (foreign && hello != nullptr) hello->versions = {later, later};
  if (auto* registers = std::get_if<protocol::Register>(&effect.message)) *registers = where();
  if (!insider) return outbox_.add(std::move(effect.message), clock());
  for (protocol::Message& message : insider->instead_of(std::move(effect.message)))
    outbox_.add(std::move(message), clock());
}

void PeerNode::apply(peer::Listen&) {
  if (!cannot_listen) links_.listen();
  Result<uint16_t> port = port_;
  if (cannot_listen) port = Status{Code::kSystem, "no port to listen on", {}};
  control([this, port] { step(peer::Listening{port, {}}); });
}

void PeerNode::apply(peer::AcceptAs& effect) {
  id_ = effect.self;
  links_.accept_as({.self = id_,
                    .run_id = effect.run_id,
                    .version = effect.version,
                    .accepting = effect.accepting,
                    .peer_timeout = effect.peer_timeout});
}

void PeerNode::apply(peer::DialPeer& effect) {
  data([this, dial = effect.dial] {
    std::vector<Endpoint> at = {{dial.host, dial.port}};
    at.insert(at.end(), dial.others.begin(), dial.others.end());
    links_.step(link::Dial{dial.peer, at, dial.dead_serial, dial.credential});
  });
}

void PeerNode::apply(peer::AcceptWith& effect) {
  data([this, key = effect.key] { links_.step(link::AcceptWith{key}); });
}

void PeerNode::apply(peer::ForgetPeer& effect) {
  if (world_.options().plant == Bug::kNoForget) return;
  data([this, peer = effect.peer] { links_.step(link::Forget{peer}); });
}

void PeerNode::apply(peer::BeginEpoch& effect) {
  member_ = true;
  members_ = effect.peers;
  members_.insert(members_.begin() + effect.rank, id_);
  data([this, begin = effect] {
    engine_.begin_epoch(begin.epoch, begin.peers);
    links_.step(link::NeighboursKnown{begin.neighbours});
  });
}

void PeerNode::apply(peer::OpenLanes& effect) {
  data([this, effect] { links_.step(link::LanesWanted{effect.peer, effect.measured}); });
}

void PeerNode::apply(peer::SampleLink& effect) {
  data([this, peer = effect.peer] {
    const auto received = engine_.received_from(peer);
    const peer::LinkSampled sample{peer, received.has_value(), received.value_or(0),
                                   links_.opening(peer)};
    control([this, sample] { step(sample); });
  });
}

void PeerNode::apply(peer::EndOp& effect) {
  if (const auto unposted = unposted_.extract(effect.op)) {
    control([this, epoch = unposted.mapped(), op = effect.op] {
      step(peer::OpDrained{epoch, op});
    });
    return;
  }
  data([this, end = effect] { engine_.end(end); });
}

void PeerNode::apply(peer::SayDone& effect) {
  data([this, op = effect.op] { engine_.done(op); });
}

void PeerNode::ask_topology() {
  to_control_.post(late(), [this] { run([this] { step(peer::TopologyAsked{}); }); });
}

// It draws no random number for its delay, so that the runs of earlier seeds stay as they were.
void PeerNode::apply(peer::LookAtWaits&) {
  to_control_.post(Duration{0},
                   [this, seen = app_->waits()] { run([this, seen] { step(seen); }); });
}

void PeerNode::apply(peer::SampleTelemetry&) {
  to_control_.post(Duration{0}, [this] { run([this] { step(peer::TelemetrySampled{}); }); });
}

void PeerNode::apply(peer::ShowTopology& effect) {
  if (!in_flight_.empty()) world_.on_violation(name_ + ": its rank changed under an operation");
  app_->on_shown(effect.topology);
}

void PeerNode::apply(peer::FinishOp& effect) {
  in_flight_.erase(effect.handle);
  if (device_ == nullptr || !device_->finish(effect)) app_->on_op(effect);
}

// The application first waits for its operations that have ended.
void PeerNode::apply(peer::FinishJoint& effect) {
  if (background_ && effect.status.ok()) {  // it holds the success until the application waits
    unclaimed_ = std::move(effect);
    return;
  }
  background_ = false;
  if (device_ != nullptr) device_->end();
  if (effect.status.ok() && !effect.install.empty()) {
    app_->on_install();
    PCCL_ASSERT(shared_call_ == effect.handle && shared_->install(effect.install).ok());
    app_->on_added(shared_->take_added());
  }
  if (effect.kind == protocol::JointKind::kSyncSharedState) {
    // It comes before what the application calls next, and draws no random number for its delay.
    const peer::JointConcluded event{effect.handle};
    to_control_.post(late(), [this, event] { run([this, event] { step(event); }); });
  }
  app_->on_joint(effect);
}

void PeerNode::wait_for_sync() {
  background_ = false;
  if (!unclaimed_) call(peer::JointAwaited{decided_call_});
  if (!unclaimed_) return;
  peer::FinishJoint end = *std::exchange(unclaimed_, {});
  apply(end);
}

void PeerNode::apply(peer::Gone& effect) {
  gone_ = true;
  if (device_ != nullptr) device_->end();
  ended_at_ = world_.event_loop().now();
  app_->on_gone(effect.why);
  // The process no longer needs its sockets. One that lingers may be killed before it should be.
  const auto close = [this] { data([this] { links_.close_all("closed by " + name_); }); };
  const bool killed = Random(world_.options().seed ^ port_).once_in(3);
  if (!effect.lingers || killed) return close();
  world_.event_loop().after(kLingerTime, close);
}

void PeerNode::apply(peer::Log& effect) { world_.note(name_, leveled(effect)); }

// For a newcomer that is to be killed at a certain point of its joining.
void PeerNode::count_message() {
  if (messages_left_ == 0 || --messages_left_ > 0) return;
  world_.event_loop().after(Duration{0}, [this] {
    if (!member_) kill("killed while joining");
  });
}

void PeerNode::apply(peer::StartOp& start) {
  ring::Memory memory;
  if (start.piece && hangs) {
    unposted_[start.task.op] = start.task.epoch;
    return;
  }
  if (start.piece) {
    const auto lent = shared_->lend(start.task.op, *start.piece);
    if (!lent.ok()) {
      unposted_[start.task.op] = start.task.epoch;
      const peer::OpFailed event{start.task.epoch, start.task.op, lent.status()};
      return control([this, event] { step(event); });
    }
    memory.spans = {lent.value()};
    memory.save = false;
    if (!start.piece->receives && world_.on_state_sent) world_.on_state_sent(*this);
  } else if (start.probe) {
    memory = peer::probe_memory(start.task).value();
  } else {
    memory = app_->memory(start.handle);
    if (device_ != nullptr) device_->replace(start.handle, memory);
    auto arranged = peer::arrange(std::move(memory), start.task, start.start, start.order);
    PCCL_ASSERT(arranged.ok());
    memory = std::move(arranged.value());
    std::vector<PeerId> order;
    for (const uint32_t rank : start.order) order.push_back(members_.at(rank));
    app_->on_started(start, std::move(order));
  }
  memory.dtype = start.dtype;
  memory.reduce = start.reduce;
  memory.contributors = start.contributors;
  const Bug plant = world_.options().plant;
  if (plant == Bug::kNoRestore) memory.save = false;
  if (plant == Bug::kForeignSize && port_ == 1) ++memory.contributors;
  if (plant == Bug::kNeverAbsent) start.task.absent = {};
  start.task.handle = start.handle;
  data([this, task = start.task, memory = std::move(memory)] { engine_.post(task, memory); });
}

protocol::Register PeerNode::where() const {
  if (first_address == 0) return {"", port_};
  return {"", first_address, {{"10.0.0.2", port_}}};
}

void PeerNode::apply(peer::BeginPieces& effect) {
  if (shared_call_ != effect.handle) {
    peer::SharedEntries::Options options;
    options.piece_bytes = kPieceBytes;
    options.in_place = app_->receives_only() && !app_->syncs_in_background();
    auto spans = peer::StateSpans::make(app_->state(), app_->may_add()).value();
    shared_ = peer::SharedEntries::make(std::move(spans), options);
    shared_call_ = effect.handle;
  }
  shared_->begin(effect);
  fetches_ |= effect.receives;
  if (std::exchange(decided_call_, effect.handle) == effect.handle) return;
  background_ = app_->syncs_in_background();
  if (background_) app_->on_decided(effect.receives);
}

void PeerNode::apply(peer::CheckPiece& effect) {
  if (hangs) return;
  peer::SharedEntries::Checked checked = shared_->check(effect.op, effect.what);
  peer::PieceChecked event{effect.handle, effect.plan,    effect.peer,
                           effect.what,   checked.status, checked.have};
  control([this, event] { step(event); });
}

void PeerNode::apply(peer::SyncProgress& effect) {
  if (effect.done == 0 || effect.done > effect.total || effect.handle != shared_call_)
    world_.on_violation(name_ + ": wrong progress of a sync");
}

// ---- Faults ----

void PeerNode::kill(const std::string& why) {
  if (!alive_) return;
  world_.note(name_, why);
  if (connection_) world_.close(connection_, false, "connection reset");
  links_.close_all("connection reset");
  alive_ = false;
  if (!ended_at_) ended_at_ = world_.event_loop().now();
}

void PeerNode::leave() {
  left_ = true;
  call(peer::LeaveCalled{});
}

void PeerNode::stop() {
  paused_ = true;
  world_.note(name_, "stopped");
}

void PeerNode::go_on() {
  if (!paused_) return;
  paused_ = false;
  world_.note(name_, "goes on");
  while (!backlog_.empty() && alive_ && !paused_) {
    const auto next = std::move(backlog_.front());
    backlog_.pop_front();
    next();
  }
  links_.pump();
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
  links_.set_time();
}

}  // namespace pccl::sim
