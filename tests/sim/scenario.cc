#include "tests/sim/scenario.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "csrc/memory/state_hash.h"
#include "master/diagnosis/diagnosis.h"
#include "master/run_view.h"
#include "tests/sim/peer_node.h"

namespace pccl::sim {
namespace {

using Arguments = std::map<std::string, std::string>;

uint64_t number(const Arguments& with, const std::string& name, uint64_t otherwise) {
  const auto found = with.find(name);
  return found == with.end() ? otherwise : std::strtoull(found->second.c_str(), nullptr, 10);
}

std::string word(const Arguments& with, const std::string& name) {
  const auto found = with.find(name);
  return found == with.end() ? "" : found->second;
}

World::Renewal renewal(const std::string& as) {
  if (as == "unknown") return World::Renewal::kUnknown;
  return as == "another" ? World::Renewal::kOfAnother : World::Renewal::kKnown;
}

// The application of a scenario's peer: performs the commands, and writes their results.
class AddressPublisher : public App {
 public:
  AddressPublisher(PeerNode& node, size_t state_bytes) : node_(node), state_(state_bytes) {
    joint_ = "join";
    node_.call(peer::JoinCalled{node_.new_handle()});
  }

  void post(protocol::OpKind kind, const Arguments& with);
  void joint(protocol::JointKind kind, const Arguments& with);
  void show_state();
  void wait_for_sync() { node_.wait_for_sync(); }
  void block(const Arguments& with);
  peer::WaitsSeen waits() const override;
  bool busy() const { return (!joint_.empty() && !apart_) || !open_.empty(); }

  void on_op(const peer::FinishOp& result) override;
  void on_reconfigured(const peer::Topology&) override;
  void on_shown(const peer::Topology& topology) override { topology_ = topology; }
  void show_rank();
  void on_joint(const peer::FinishJoint& result) override;
  void on_gone(const Status& status) override {
    joint_.clear();
    node_.world().note(node_.name(), "gone: " + (status.ok() ? "left" : status.message));
  }
  ring::Memory memory(peer::Handle handle) override;
  std::vector<peer::StateSpan> state() override {
    if (missing_) return {};
    return {{"w", DType::kUint8, {static_cast<int64_t>(state_.size())}, state_}};
  }
  std::optional<peer::StateSpans::MayAdd> may_add() const override {
    if (!missing_) return {};
    return peer::StateSpans::MayAdd{room_, {}};
  }
  void on_added(std::vector<peer::AddedEntry> added) override {
    for (const peer::AddedEntry& entry : added) {
      std::copy_n(entry.memory.get(), state_.size(), state_.begin());
      node_.world().note(node_.name(), "\"" + entry.key + "\" was added");
    }
  }
  bool receives_only() const override { return receives_only_; }
  bool syncs_in_background() const override { return in_background_; }
  void on_decided(bool receives) override {
    apart_ = true;
    node_.world().note(node_.name(), std::string("sync_shared_state goes on in the background") +
                                         (receives ? ", and fetches" : ""));
  }

 private:
  struct Operation {
    std::string name, tag;
    std::vector<std::vector<std::byte>> buffers, before;
  };
  PeerNode& node_;
  peer::Topology topology_;
  std::map<peer::Handle, Operation> open_;
  std::string joint_;
  std::vector<std::byte> state_;
  bool receives_only_ = false, in_background_ = false;
  bool missing_ = false;                   // it has no state yet
  uint64_t room_ = 0;                      // for what it lacks, in bytes
  bool apart_ = false;                     // the sync goes on in the background
  std::vector<peer::ThreadWait> blocked_;  // the threads that have waited, and perhaps still do
  uint64_t busy_threads_ = 0;              // that have made calls and do not wait
  bool callback_ = false;                  // a callback of a Future will run
};

void AddressPublisher::post(protocol::OpKind kind, const Arguments& with) {
  peer::OpRequest request{
      .handle = node_.new_handle(),
      .kind = kind,
      .dtype = DType::kFloat32,
      .reduce = ReduceOp::kSum,
      .count = kind == protocol::OpKind::kBarrier ? 0 : number(with, "count", 1000),
      .root = static_cast<int32_t>(number(with, "root", 0)),
      .tag = word(with, "tag"),
      .timeout = std::chrono::milliseconds(number(with, "timeout", 0)),
      .keep = word(with, "on_loss") == "keep"};
  if (word(with, "root") == "any") request.root = peer::kAnySource;
  Operation operation{
      std::string(protocol::text(kind)) + (request.tag.empty() ? "" : " " + request.tag),
      request.tag,
      {},
      {}};
  const size_t blocks = kind == protocol::OpKind::kAllGather ? topology_.members.size() : 1;
  operation.buffers.resize(kind == protocol::OpKind::kBarrier ? 0 : blocks);
  for (auto& buffer : operation.buffers) buffer.resize(request.count * 4, std::byte{1});
  operation.before = operation.buffers;
  open_[request.handle] = std::move(operation);
  node_.call(peer::OpCalled{request});
}

void AddressPublisher::joint(protocol::JointKind kind, const Arguments& with) {
  joint_ = protocol::text(kind);
  peer::JointCalled call{.handle = node_.new_handle(),
                         .kind = kind,
                         .offer = {},
                         .timeout = std::chrono::milliseconds(number(with, "timeout", 30'000))};
  if (kind == protocol::JointKind::kSyncSharedState) {
    if (with.contains("fill"))
      std::fill(state_.begin(), state_.end(), static_cast<std::byte>(number(with, "fill", 0)));
    const std::string strategy = word(with, "strategy");
    call.offer.revision = number(with, "revision", 0);
    receives_only_ = strategy == "receive_only";
    in_background_ = with.contains("background");
    call.background = in_background_;
    missing_ = with.contains("missing");
    room_ = number(with, "room", state_.size());
    call.offer.partial = missing_;
    if (strategy == "send_only") call.offer.strategy = protocol::SyncStrategy::kSendOnly;
    if (strategy == "receive_only") call.offer.strategy = protocol::SyncStrategy::kReceiveOnly;
    if (!missing_) {
      call.offer.entries.push_back(
          {.key = "w",
           .dtype = DType::kUint8,
           .shape = {static_cast<int64_t>(number(with, "shape", state_.size()))},
           .hash = memory::state_hash(state_.data(), state_.size())});
    }
  }
  call.budget_ms = static_cast<uint32_t>(number(with, "budget", 0));
  call.max_bytes = number(with, "max_bytes", 0);
  node_.call(std::move(call));
}

// A thread of it waits from now on.
void AddressPublisher::block(const Arguments& with) {
  peer::ThreadWait wait{peer::kInJointCall, node_.clock(), with.contains("limit")};
  if (!with.contains("joint")) {
    const auto open = std::find_if(open_.begin(), open_.end(), [&](const auto& one) {
      return one.second.tag == word(with, "tag");
    });
    wait.handle = open == open_.end() ? 0 : open->first;
  }
  blocked_.push_back(wait);
  busy_threads_ = number(with, "busy", 0);
  callback_ = with.contains("callback");
}

peer::WaitsSeen AddressPublisher::waits() const {
  peer::WaitsSeen seen;
  for (peer::ThreadWait wait : blocked_) {
    const bool waits = wait.handle == peer::kInJointCall ? !joint_.empty() && !apart_
                                                         : open_.contains(wait.handle);
    if (!waits) wait.handle = 0;
    seen.threads.push_back(wait);
  }
  seen.threads.resize(seen.threads.size() + busy_threads_);
  seen.callbacks = callback_;
  return seen;
}

void AddressPublisher::show_state() {
  const bool alike = std::all_of(state_.begin(), state_.end(),
                                 [this](std::byte byte) { return byte == state_[0]; });
  node_.world().note(node_.name(),
                     alike ? "its state is " + std::to_string(std::to_integer<int>(state_[0]))
                           : "its state is mixed");
}

// It asks at once, and each time that its operations have ended.
void AddressPublisher::on_reconfigured(const peer::Topology&) { node_.call(peer::TopologyAsked{}); }

void AddressPublisher::show_rank() {
  node_.world().note(node_.name(), "it sees rank " + std::to_string(topology_.rank) + " of " +
                                       std::to_string(topology_.members.size()) + ", epoch " +
                                       text(topology_.epoch));
}

void AddressPublisher::on_op(const peer::FinishOp& result) {
  const Status& status = result.status;
  const Operation operation = std::move(open_[result.handle]);
  open_.erase(result.handle);
  std::string line = operation.name + (status.ok() ? " ok" : " failed, ");
  if (!status.ok()) {
    line += operation.buffers == operation.before ? "tensor untouched: " : "TENSOR CHANGED: ";
    line += std::string(text(status.code)) + ": " + status.message;
  }
  if (result.source >= 0) line += ", from rank " + std::to_string(result.source);
  for (const peer::Part& part : result.parts) {
    line += ", to " + std::to_string(part.end) + " over " +
            std::to_string(part.contributors.size()) + " peers";
  }
  node_.world().note(node_.name(), line);
  if (open_.empty()) node_.ask_topology();
}

void AddressPublisher::on_joint(const peer::FinishJoint& result) {
  apart_ = false;
  std::string line = std::exchange(joint_, "");
  if (!result.status.ok()) {
    line += " failed: " + std::string(text(result.status.code)) + ": " + result.status.message;
  } else if (line == "are_peers_pending") {
    line += result.pending ? ": yes" : ": no";
  } else if (line == "sync_shared_state") {
    line += ": revision " + std::to_string(result.revision) +
            (result.install.empty() ? "" : ", fetched") + (result.drifted ? ", drifted" : "");
  } else if (result.topology) {
    topology_ = *result.topology;
    line += ": rank " + std::to_string(topology_.rank) + " of " +
            std::to_string(topology_.members.size()) + ", epoch " + text(topology_.epoch);
  }
  node_.world().note(node_.name(), line);
}

ring::Memory AddressPublisher::memory(peer::Handle handle) {
  ring::Memory memory;
  auto& buffers = open_.at(handle).buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    memory.spans.emplace_back(buffers[i]);
  }
  return memory;
}

class Stage {
 public:
  Stage(bool secured, bool elsewhere, bool fixed) : world_(1, options(secured, elsewhere, fixed)) {
    world_.on_note = [this](const std::string& line) {
      char head[32];
      std::snprintf(head, sizeof head, "[%5.0f] ",
                    to_seconds(world_.event_loop().now().since_start) * 1e3);
      transcript_ += head + line + "\n";
    };
  }
  void command(const std::vector<std::string>& words);
  void expect(const std::vector<std::string>& words);
  void show_findings();
  void watch() { world_.watch(); }
  std::string snapshot() { return world_.snapshot(); }
  const std::string& transcript() const { return transcript_; }

 private:
  static WorldOptions options(bool secured, bool elsewhere, bool fixed) {
    WorldOptions options;
    options.fixed_world = fixed;
    options.secured = secured;
    options.elsewhere = elsewhere;
    options.control_delay_min = options.control_delay_max = std::chrono::milliseconds(5);
    options.disk_delay_min = options.disk_delay_max = std::chrono::milliseconds(5);
    options.wire.delay_min = options.wire.delay_max = std::chrono::milliseconds(1);
    return options;
  }
  void join(const std::vector<std::string>& names, const Arguments& with);
  void settle();
  bool collective(const std::string& verb, const Arguments& with);
  bool fault(const std::string& verb, const std::vector<std::string>& names, const Arguments& with);
  bool fault_of_master(const std::string& verb, const Arguments& with);
  bool directions(const std::string& verb, const std::vector<std::string>& names);
  std::vector<AddressPublisher*> whom(const Arguments& with);
  PeerNode* find(const std::string& name);
  void run_until(Instant until) {
    while (world_.event_loop().run_one(until)) {
    }
  }

  World world_;
  struct Founding {
    uint32_t founders = 0, min_peers = 0;
  };
  std::map<uint64_t, Founding> groups_;
  std::string transcript_;
};

PeerNode* Stage::find(const std::string& name) {
  for (const auto& peer : world_.peers()) {
    if (peer->name() == name) return peer.get();
  }
  return nullptr;
}

std::vector<AddressPublisher*> Stage::whom(const Arguments& with) {
  const std::string on = "," + word(with, "on") + ",";
  std::vector<AddressPublisher*> found;
  for (const auto& peer : world_.peers()) {
    const bool named = on == ",," || on.find("," + peer->name() + ",") != std::string::npos;
    if (named && peer->alive() && !peer->gone())
      found.push_back(static_cast<AddressPublisher*>(&peer->app()));
  }
  return found;
}

// The settings of the run that a `join` gives.
protocol::GivenSettings given_in(const Arguments& with) {
  using protocol::LossPolicy;
  protocol::GivenSettings given;
  const std::string policy = word(with, "policy");
  if (!policy.empty())
    given.on_peer_loss = policy == "retry" ? LossPolicy::kRetry : LossPolicy::kRaise;
  if (word(with, "pattern") == "direct") given.pattern = protocol::PatternChoice::kDirect;
  if (const auto ms = number(with, "call_timeout", 0); ms > 0)
    given.call_timeout = std::chrono::milliseconds(ms);
  return given;
}

void Stage::join(const std::vector<std::string>& names, const Arguments& with) {
  const uint64_t group = number(with, "group", 0);
  if (!groups_.contains(group)) {  // the peers that are named first found it
    groups_[group] = {static_cast<uint32_t>(number(with, "founders", names.size())),
                      static_cast<uint32_t>(number(with, "min_peers", names.size()))};
  }
  const Founding& founding = groups_[group];
  for (const std::string& name : names) {
    peer::Options options;
    options.group = GroupId{static_cast<uint32_t>(group)};
    options.min_peers = founding.min_peers;
    options.piece_bytes = kPieceBytes;
    options.probe_bytes_max = kProbeBytes;
    options.founders = std::max(founding.founders, founding.min_peers);
    options.versions.lowest += static_cast<uint16_t>(number(with, "lowest", 0));
    options.versions.highest += static_cast<uint16_t>(number(with, "highest", 0));
    options.given = given_in(with);
    PeerNode& node = world_.add_peer(name, options);
    node.set_app(std::make_unique<AddressPublisher>(node, number(with, "state", 1000)));
  }
}

void Stage::settle() {
  const Instant end = world_.event_loop().now() + std::chrono::seconds(60);
  const auto busy = [this] {
    const auto all = whom({});
    return std::any_of(all.begin(), all.end(),
                       [](AddressPublisher* publisher) { return publisher->busy(); });
  };
  while (busy() && world_.event_loop().run_one(end)) {
  }
  if (busy()) world_.note("stage", "calls still open after 60 s");
  run_until(world_.event_loop().now() + std::chrono::milliseconds(50));
}

bool Stage::collective(const std::string& verb, const Arguments& with) {
  using protocol::JointKind;
  using protocol::OpKind;
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kBroadcast, OpKind::kAllGather,
                            OpKind::kBarrier, OpKind::kSend, OpKind::kRecv}) {
    if (verb != protocol::text(kind)) continue;
    for (AddressPublisher* publisher : whom(with)) publisher->post(kind, with);
    return true;
  }
  const std::string joint = verb == "sync" ? "sync_shared_state" : verb;
  for (const JointKind kind : {JointKind::kUpdateTopology, JointKind::kArePeersPending,
                               JointKind::kSyncSharedState, JointKind::kOptimizeTopology}) {
    if (joint != protocol::text(kind)) continue;
    for (AddressPublisher* publisher : whom(with)) publisher->joint(kind, with);
    return true;
  }
  return false;
}

bool Stage::fault_of_master(const std::string& verb, const Arguments& with) {
  if (verb == "kill")
    world_.kill_master();
  else if (verb == "start")
    world_.start_master();
  else if (verb == "end")
    world_.end_master();
  else if (verb == "stop")
    world_.stop_master();
  else if (verb == "go")
    world_.master_goes_on();
  else if (verb == "jump")
    world_.jump_master_clock(std::chrono::milliseconds(number(with, "by", 0)));
  else
    return false;
  return true;
}

// Both directions between two hosts, or only what the first sends to the second.
bool Stage::directions(const std::string& verb, const std::vector<std::string>& names) {
  std::vector<Network::Host> hosts;
  for (const std::string& name : names) {
    const PeerNode* node = find(name);
    if (node == nullptr && name != "master") return false;
    hosts.push_back(node == nullptr ? Network::kMaster : node->port());
  }
  if (hosts.size() != 2) return false;
  const auto change = verb.starts_with("block") ? &World::block : &World::lift;
  (world_.*change)(hosts[0], hosts[1]);
  if (!verb.ends_with("_one_way")) (world_.*change)(hosts[1], hosts[0]);
  return true;
}

bool Stage::fault(const std::string& verb, const std::vector<std::string>& names,
                  const Arguments& with) {
  if (names == std::vector<std::string>{"master"} && fault_of_master(verb, with)) return true;
  if (verb.starts_with("block") || verb.starts_with("lift")) return directions(verb, names);
  std::vector<PeerNode*> nodes;
  for (const std::string& name : names) nodes.push_back(find(name));
  if (nodes.empty() || std::count(nodes.begin(), nodes.end(), nullptr) > 0) return false;
  if (verb == "kill")
    nodes[0]->kill("killed");
  else if (verb == "stop")
    nodes[0]->stop();
  else if (verb == "go")
    nodes[0]->go_on();
  else if (verb == "hang")
    nodes[0]->hangs = true;
  else if (verb == "leave")
    nodes[0]->leave();
  else if (verb == "revoke" && with.contains("token"))
    world_.revoke(*nodes[0], static_cast<uint32_t>(number(with, "token", 1)));
  else if (verb == "revoke")
    world_.revoke(*nodes[0]);
  else if (verb == "renew")
    world_.renew(*nodes[0], renewal(word(with, "as")));
  else if (verb == "learn")
    world_.learn(*nodes[0]);
  else if (verb == "unreachable")
    nodes[0]->unreachable = true;
  else if (verb == "closed")
    nodes[0]->closed = true;
  else if (verb == "slow")
    nodes[0]->be_slow(std::chrono::milliseconds(number(with, "by", 0)));
  else if (verb == "jump")
    nodes[0]->jump_clock(std::chrono::milliseconds(number(with, "by", 0)));
  else if (verb == "dies")
    nodes[0]->die_while_joining(static_cast<int>(number(with, "after", 1)));
  else if (verb == "half_cut")
    world_.half_break_master_connection(*nodes[0], word(with, "hears") == "master");
  else if (verb == "half_break" && nodes.size() == 2)
    world_.half_break_link(*nodes[0], *nodes[1], false);
  else if (verb == "cut")
    world_.break_master_connection(*nodes[0]);
  else if (verb == "break" && nodes.size() == 2)
    world_.break_link(*nodes[0], *nodes[1]);
  else if (verb == "narrow" && nodes.size() == 2)
    world_.narrow(nodes[0]->port(), nodes[1]->port(), number(with, "to", 1300));
  else
    return false;
  return true;
}

void Stage::expect(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i];
  if (transcript_.find(text) == std::string::npos) transcript_ += kUnmet + (": " + text) + "\n";
}

void Stage::show_findings() {
  if (!world_.master_runs()) return world_.note("findings", "there is no master");
  for (const master::Finding& one : master::diagnose(world_.master()->view())) {
    std::string whom;
    for (const std::string& name : one.whom) whom += (whom.empty() ? " of " : ", ") + name;
    world_.note("findings", std::string(text(one.severity)) + ", " + text(one.code) + whom + ": " +
                                one.text + ". Next: " + one.next);
  }
}

void Stage::command(const std::vector<std::string>& words) {
  Arguments with;
  std::vector<std::string> names;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos)
      names.push_back(words[i]);
    else
      with[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  const std::string& verb = words[0];
  if (verb == "expect") return expect(words);
  if (verb == "join") return join(names, with);
  if (verb == "settle") return settle();
  if (verb == "findings") return show_findings();
  if (verb == "state") {
    for (AddressPublisher* publisher : whom(with)) publisher->show_state();
    return;
  }
  if (verb == "rank") {
    for (AddressPublisher* publisher : whom(with)) publisher->show_rank();
    return;
  }
  if (verb == "wait") {
    for (AddressPublisher* publisher : whom(with)) publisher->wait_for_sync();
    return;
  }
  if (verb == "block_on") {
    for (AddressPublisher* publisher : whom(with)) publisher->block(with);
    return;
  }
  if (verb == "secured" || verb == "elsewhere" || verb == "fixed") return;  // the stage was made so
  if (verb == "far")
    return world_.set_round_trip(static_cast<uint32_t>(number(with, "us", 50'000)));
  if (verb == "run" && names.size() == 1) {
    return run_until(world_.event_loop().now() +
                     std::chrono::milliseconds(std::atoi(names[0].c_str())) +
                     std::chrono::microseconds(number(with, "us", 0)));
  }
  if (!collective(verb, with) && !fault(verb, names, with))
    transcript_ += "unknown command: " + verb + "\n";
}

Stage stage_of(const std::string& commands) {
  const auto has_line = [text = "\n" + commands](const std::string& line) {
    return text.find("\n" + line + "\n") != std::string::npos;
  };
  return {has_line("secured"), has_line("elsewhere"), has_line("fixed")};
}

void perform(Stage& stage, const std::string& commands) {
  std::istringstream lines(commands);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream parts(line);
    for (std::string part; std::getline(parts, part, ';');) {
      std::istringstream split(part);
      std::vector<std::string> words;
      for (std::string one; split >> one;) words.push_back(one);
      if (!words.empty()) stage.command(words);
    }
  }
}

}  // namespace

std::string run_scenario(const std::string& commands) {
  Stage stage = stage_of(commands);
  perform(stage, commands);
  return stage.transcript();
}

std::string snapshot_after(const std::string& commands) {
  constexpr const char* kReports = "run 4000";  // the members report every two seconds
  Stage stage = stage_of(commands);
  perform(stage, commands);
  stage.watch();
  perform(stage, kReports);
  return stage.snapshot();
}

}  // namespace pccl::sim
