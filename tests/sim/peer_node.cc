#include "tests/sim/peer_node.h"

#include <algorithm>
#include <utility>

#include "csrc/ring/state_hash.h"

namespace pccl::sim {
namespace {

constexpr Duration kInboxMin = std::chrono::microseconds(1);
constexpr Duration kInboxMax = std::chrono::microseconds(200);
constexpr Duration kDialTimeout = std::chrono::seconds(1);
constexpr Duration kDialPause = std::chrono::seconds(1);

}  // namespace

PeerNode::PeerNode(World& world, std::string name, uint16_t port, peer::Options options)
    : world_(world),
      name_(std::move(name)),
      port_(port),
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
               .on_drained =
                   [this](Epoch epoch, OpKey op) {
                     control([this, epoch, op] { step(peer::OpDrained{epoch, op}); });
                   },
               .on_fail_link =
                   [this](PeerId peer, const std::string& why) {
                     data([this, peer, why] {
                       const auto found = links_.find(peer);
                       if (found == links_.end()) return;
                       const Link link = found->second;
                       link_closed(*link.other, link.wire, why);
                       link.other->link_closed(*this, link.wire, "closed by " + name_);
                     });
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
  to_control_.post(world_.random().duration(kInboxMin, kInboxMax),
                   [this, what = std::move(what)] { run(what); });
}

void PeerNode::data(std::function<void()> what) {
  to_data_.post(world_.random().duration(kInboxMin, kInboxMax),
                [this, what = std::move(what)] { run(what); });
}

void PeerNode::call(peer::Event event) {
  control([this, event = std::move(event)] { step(event); });
}

void PeerNode::step(const peer::Event& event) {
  if (!alive_) return;
  peer::Effects effects;
  core_.step(event, world_.clockwork().now(), effects);
  for (auto& effect : effects) perform(effect);
  arm();
}

void PeerNode::arm() {
  const auto deadline = core_.deadline();
  const uint64_t armed = ++timer_;
  if (!deadline || gone_) return;
  world_.clockwork().at(*deadline, [this, armed] {
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
  } else if (auto* listen = std::get_if<peer::Listen>(&effect)) {
    id_ = listen->self;
    control([this] { step(peer::Listening{Result<uint16_t>(port_)}); });
  } else if (auto* dialling = std::get_if<peer::DialPeer>(&effect)) {
    data([this, what = dialling->dial] { dial(what); });
  } else if (auto* forget = std::get_if<peer::ForgetPeer>(&effect)) {
    data([this, peer = forget->peer] { drop_link(peer, true); });
  } else if (auto* begin = std::get_if<peer::BeginEpoch>(&effect)) {
    data([this, begin = *begin] { engine_.begin_epoch(begin.epoch, begin.peers); });
  } else if (auto* start = std::get_if<peer::StartOp>(&effect)) {
    start_op(*start);
  } else if (auto* end = std::get_if<peer::EndOp>(&effect)) {
    data([this, end = *end] { engine_.end(end); });
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
  } else if (auto* log = std::get_if<peer::Log>(&effect)) {
    world_.note(name_, log->text);
  }
}

void PeerNode::start_op(peer::StartOp& start) {
  ring::Memory memory;
  if (start.task.shape.pattern == ring::Pattern::kTransfer && !start.keys.empty()) {
    memory.spans = app_->state(start.handle, start.keys, start.task.shape.rank == 1);
    memory.save = false;
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
  dialling_[dial.peer] = dial;
  const auto up = links_.find(dial.peer);
  if (up != links_.end() && up->second.wire->serial > dial.dead_serial) return tell_up(dial.peer);
  if (up != links_.end()) drop_link(dial.peer, false);
  dial_again(dial.peer);
}

void PeerNode::dial_again(PeerId peer) {
  const auto found = dialling_.find(peer);
  if (found == dialling_.end() || links_.contains(peer)) return;
  PeerNode* other = world_.by_port(found->second.port);
  const bool reachable = other != nullptr && other->alive_ && !other->unreachable &&
                         other->id_ == peer && !other->gone_;
  if (!reachable) {
    world_.clockwork().after(kDialTimeout, [this, peer] {
      run([this, peer] {
        if (!dialling_.contains(peer) || links_.contains(peer)) return;
        if (reported_unreachable_.insert(peer).second) {
          control([this, peer] {
            step(peer::LinkChanged{
                {peer, protocol::LinkState::kUnreachable, "connection timed out", 0}});
          });
        }
        world_.clockwork().after(kDialPause,
                                 [this, peer] { run([this, peer] { dial_again(peer); }); });
      });
    });
    return;
  }
  // As in the shell: a new attempt takes the place of the one under way, and whoever has a link
  // that seems to live keeps it.
  auto wire = std::make_shared<Wire>(world_.clockwork(), world_.random(), world_.options().wire);
  wire->serial = attempts_[peer] = ++serials_;
  world_.clockwork().after(world_.control_delay(), [this, other, wire] {
    other->run([this, other, wire] {
      if (!alive_ || other->gone_) return;
      const auto kept = other->links_.find(id_);
      wire->cut = kept != other->links_.end() && !kept->second.wire->cut;
      if (!wire->cut) other->link_opened(*this, wire, 1, false);
      world_.clockwork().after(world_.control_delay(), [this, other, wire] {
        run([this, other, wire] {
          if (attempts_[other->id_] == wire->serial) return link_opened(*other, wire, 0, true);
          other->link_closed(*this, wire, "closed by " + name_);
        });
      });
    });
  });
}

void PeerNode::link_opened(PeerNode& other, const std::shared_ptr<Wire>& wire, int side,
                           bool dialled) {
  if (dialled && wire->cut) return dial_again(other.id_);
  if (links_.contains(other.id_)) drop_link(other.id_, false);
  const PeerId peer = other.id_;
  links_[peer] = Link{wire, side, &other};
  net::FrameSink& sink = engine_.link_up(peer, wire->port(side));
  wire->attach(side, {.sink = &sink,
                      .on_chunk_sent = [this, peer] { engine_.chunk_sent(peer); },
                      .on_bad_frame =
                          [this, &other, own = std::weak_ptr(wire)](Status why) {
                            link_closed(other, own.lock(), why.message);
                            other.link_closed(*this, own.lock(), why.message);
                          },
                      .stopped = [this] { return stopped_; }});
  reported_unreachable_.erase(peer);
  if (dialled) tell_up(peer);
}

void PeerNode::tell_up(PeerId peer) {
  const protocol::LinkReport up{peer, protocol::LinkState::kUp, "", links_.at(peer).wire->serial};
  control([this, up] { step(peer::LinkChanged{up}); });
}

// The connection to `other` ended by no will of ours.
void PeerNode::link_closed(PeerNode& other, const std::shared_ptr<Wire>& wire,
                           const std::string& why) {
  wire->cut = true;
  world_.clockwork().after(world_.control_delay(), [this, &other, why, wire] {
    run([this, &other, why, wire] {
      const auto link = links_.find(other.id_);
      if (link == links_.end() || link->second.wire != wire) return;
      drop_link(other.id_, false);
      const protocol::LinkReport down{other.id_, protocol::LinkState::kDown, why, wire->serial};
      control([this, down] { step(peer::LinkChanged{down}); });
    });
  });
}

void PeerNode::drop_link(PeerId peer, bool by_us) {
  if (by_us) dialling_.erase(peer);
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  const Link link = found->second;
  links_.erase(found);
  engine_.link_down(peer);
  link.wire->detach(link.side);
  link.other->link_closed(*this, link.wire, "closed by " + name_);
}

// ---- Faults ----

void PeerNode::kill(const std::string& why) {
  if (!alive_) return;
  world_.note(name_, why);
  if (connection_) world_.close(connection_, false, "connection reset");
  for (const auto& [peer, link] : links_) {
    link.wire->detach(link.side);
    link.other->link_closed(*this, link.wire, "connection reset");
  }
  alive_ = false;
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
  for (const auto& [peer, link] : links_) link.wire->pump(link.side);
}

}  // namespace pccl::sim
