// Transcript: a PeerCore whose effects are written down as text. It feeds events to the core,
// carries the core's clock, and writes each effect as one line, so that a test reads as the story
// it tells. There are three peers, 1.1 to 1.3; the subject is 1.2, with rank 1.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/peer/core.h"
#include "csrc/peer/request.h"
#include "csrc/protocol/codec.h"

namespace pccl::peer {

inline PeerId peer_id(uint32_t counter) { return {(uint64_t{1} << 32) | counter}; }
inline Epoch epoch_id(uint32_t counter) { return {(uint64_t{1} << 32) | counter}; }

inline std::string seconds(double count) {
  return text(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(count)));
}

class Transcript {
 public:
  explicit Transcript(Options options = default_options()) : core_(std::move(options)) {}

  static Options default_options() {
    Options options;
    options.run = "demo";
    options.min_peers = 3;
    options.master_text = "host:1";
    options.join_timeout = std::chrono::seconds(60);
    return options;
  }

  static Options retrying() {
    Options options = default_options();
    options.given.on_peer_loss = protocol::LossPolicy::kRetry;
    return options;
  }

  // Steps the core and returns its effects, one per line.
  std::string on(const Event& event) {
    Effects effects;
    core_.step(event, now_, effects);
    std::string out;
    for (const Effect& effect : effects) {
      if (const auto* progress = std::get_if<SyncProgress>(&effect)) {
        progress_ = *progress;
        continue;
      }
      if (std::holds_alternative<LookAtWaits>(effect)) {
        ++looks_;
        continue;
      }
      if (const auto* judged = std::get_if<OpJudged>(&effect)) {
        judged_ = *judged;
        continue;
      }
      std::visit(
          [&out](const auto& what) {
            if constexpr (requires { line(what); }) out += line(what) + "\n";
          },
          effect);
    }
    return out;
  }
  // How often the core has asked for the waits. These effects are left out of the lines.
  int looks() const { return looks_; }
  // The last OpJudged. These effects are left out of the lines, too.
  const OpJudged& judged() const { return judged_; }
  // The last one of them. It is left out of the lines.
  const SyncProgress& progress() const { return progress_; }
  std::string hear(protocol::Message message) { return on(MasterSent{std::move(message)}); }

  // Lets time pass and steps the core at each of its deadlines.
  std::string wait(double count) {
    const Instant until =
        now_ + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(count));
    std::string out;
    while (core_.deadline() && *core_.deadline() <= until) {
      now_ = std::max(now_, *core_.deadline());
      out += on(TimePassed{});
    }
    now_ = until;
    return out;
  }

  // ---- Steps that most tests begin with ----
  // Of a run whose first peer was like this one.
  protocol::Welcome welcome() const {
    protocol::Welcome welcome{peer_id(2), 77, 1, "10.0.0.2", false};
    welcome.settings = core_.settings();
    return welcome;
  }
  void register_now() {
    on(JoinCalled{1});
    on(MasterConnected{});
    hear(welcome());
    on(Listening{uint16_t{4000}});
  }
  protocol::EpochStart start_of(uint32_t epoch, std::vector<uint32_t> peers,
                                std::vector<uint32_t> ring = {}) {
    protocol::EpochStart start;
    start.epoch = start.generation = epoch_id(epoch);
    for (uint32_t peer : peers)
      start.members.push_back({peer_id(peer), "10.0.0." + std::to_string(peer)});
    for (uint32_t rank = 0; rank < peers.size(); ++rank) start.ring.push_back(rank);
    if (!ring.empty()) start.ring = ring;
    return start;
  }
  void become_member() {
    register_now();
    hear(start_of(1, {1, 2, 3}));
  }
  void become_far_member() {
    register_now();
    protocol::EpochStart start = start_of(1, {1, 2, 3});
    start.rtt = 50'000;
    hear(start);
  }

  OpRequest all_reduce(Handle handle, std::string tag = "", Duration timeout = {}) {
    OpRequest request;
    request.handle = handle;
    request.count = 8;
    request.tag = std::move(tag);
    request.timeout = timeout;
    return request;
  }
  OpRequest kind(Handle handle, protocol::OpKind what, int32_t root = -1) {
    OpRequest request = all_reduce(handle);
    request.kind = what;
    request.root = root;
    return request;
  }
  std::string call(OpRequest request) { return on(OpCalled{std::move(request)}); }
  std::string joint(Handle handle, protocol::JointKind what, double timeout = 0) {
    return on(
        JointCalled{handle,
                    what,
                    {},
                    std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout))});
  }
  // The key of the n-th operation under a tag; most tests use the default tag.
  static OpKey key(uint32_t sequence, const std::string& tag = "") {
    return {tag_id(tag), sequence};
  }
  static protocol::Verdict aborted(OpKey op, Code code, std::string why) {
    return {op, protocol::Outcome::kAborted, code, std::move(why)};
  }
  static protocol::Verdict committed(OpKey op) {
    return {op, protocol::Outcome::kCommitted, Code::kOk, ""};
  }
  std::string decide(uint32_t epoch, uint64_t first, std::vector<protocol::Verdict> verdicts) {
    return hear(protocol::Verdicts{epoch_id(epoch), first, std::move(verdicts)});
  }
  std::string lose(uint32_t epoch, uint32_t peer, std::vector<OpKey> commit = {}) {
    return hear(protocol::EpochEnd{epoch_id(epoch),
                                   {{peer_id(peer), ""}},
                                   std::move(commit),
                                   "peer " + text(peer_id(peer)) + " lost",
                                   protocol::Continuation::kNothing,
                                   {}});
  }

  // The end of an epoch with a continuation, and the reconfiguration that follows.
  std::string go_on(uint32_t epoch, std::vector<OpKey> commit = {}) {
    return hear(protocol::EpochEnd{
        epoch_id(epoch), {}, std::move(commit), "", protocol::Continuation::kEverything, {}});
  }
  std::string reconfigure(uint32_t epoch) {
    protocol::EpochStart start = start_of(epoch, {1, 2, 3});
    start.generation = epoch_id(1);
    return hear(start);
  }

  PeerCore& core() { return core_; }
  Instant now() const { return now_; }

  // ---- Effects as lines ----
  static std::string line(const ConnectMaster& what) {
    return what.token == 1 ? "connect" : "connect with token " + std::to_string(what.token);
  }
  static std::string line(const ForgetTokens& what) {
    return "forget tokens before " + std::to_string(what.before);
  }
  static std::string line(const CloseMaster&) { return "close"; }
  static std::string line(const SendMaster& what) {
    return std::string("tell ") + protocol::name(what.message) +
           std::visit([](const auto& message) { return detail(message); }, what.message);
  }
  static std::string line(const Listen& what) {
    return what.loopback_only ? "listen on loopback" : "listen";
  }
  static std::string line(const AcceptAs& what) {
    const bool by_default = what.peer_timeout == protocol::kPeerTimeoutDefault;
    return "accept as " + text(what.self) +
           (by_default ? "" : " with a peer timeout of " + pccl::text(what.peer_timeout));
  }
  static std::string line(const DialPeer& what) {
    return "dial " + text(what.dial.peer) + " at " + what.dial.host + ":" +
           std::to_string(what.dial.port);
  }
  static std::string line(const AcceptWith& what) {
    return "accept with the key of " + std::to_string(what.key.incarnation);
  }
  static std::string line(const ForgetPeer& what) { return "forget " + text(what.peer); }
  static std::string line(const BeginEpoch& what) {
    std::string out = "begin epoch " + text(what.epoch) + " with";
    for (PeerId peer : what.peers) out += " " + text(peer);
    return out;
  }
  static std::string line(const StartOp& what) {
    const ring::Task& task = what.task;
    std::string out = "start " + number(what.handle) + " as " + text(task.op) + ": " +
                      std::to_string(task.shape.rank) + " of " + std::to_string(task.shape.world);
    if (task.upstream) out += ", from " + text(task.upstream);
    if (task.downstream) out += ", to " + text(task.downstream);
    if (what.piece) out += ", " + piece_text(what.piece->what);
    if (what.start > 0) out += ", after " + std::to_string(what.start);
    if (task.absent.any()) out += ", absent";
    if (what.probe) out += ", a probe";
    return out;
  }
  static std::string line(const OpenLanes& what) {
    return "open lanes to " + text(what.peer) + (what.measured ? ", to measure" : "");
  }
  static std::string line(const SampleTelemetry& what) {
    std::string out = "sample the links to";
    for (const PeerId peer : what.links) out += " " + text(peer);
    return out;
  }
  static std::string line(const SampleLink& what) { return "look at " + text(what.peer); }
  static std::string line(const EndOp& what) {
    const char* const endings[] = {"committed", "aborted", "again"};
    std::string out = "end " + text(what.op) + " " + endings[static_cast<size_t>(what.ending)];
    return what.keep == 0 ? out : out + ", keeping " + std::to_string(what.keep);
  }
  static std::string line(const SayDone& what) { return "say that " + text(what.op) + " is done"; }
  static std::string line(const Reconfigured& what) {
    return "reconfigured in epoch " + text(what.topology.epoch) + ": rank " +
           std::to_string(what.topology.rank) + " of " +
           std::to_string(what.topology.members.size());
  }
  static std::string line(const ShowTopology& what) {
    return "show rank " + std::to_string(what.topology.rank) + " of " +
           std::to_string(what.topology.members.size());
  }
  static std::string piece_text(uint32_t what) {
    const std::string number = std::to_string(what & ~(kSpare | kHave));
    if ((what & kSpare) != 0) return "spare piece " + number;
    if (what == kManifest) return "manifest";
    return ((what & kHave) != 0 ? "news after " : "piece ") + number;
  }
  static std::string line(const BeginPieces& what) {
    return "pieces of " + number(what.handle) + (what.keeps ? " go on" : " begin");
  }
  static std::string line(const CheckPiece& what) {
    return "check " + number(what.handle) + ", " + piece_text(what.what) + " from " +
           text(what.peer);
  }
  static std::string line(const SyncProgress&) { return ""; }
  static std::string line(const ReturnPiece& what) { return "return " + text(what.op); }
  static std::string line(const FinishOp& what) {
    std::string out = "finish " + number(what.handle) + ": " + outcome(what.status);
    if (what.source >= 0) out += ", from rank " + std::to_string(what.source);
    for (const Part& part : what.parts) {
      out += ", to " + std::to_string(part.end) + " over";
      for (const PeerId peer : part.contributors) out += " " + text(peer);
    }
    return out;
  }
  static std::string line(const FinishJoint& what) {
    std::string out = "finish joint " + number(what.handle) + ": " + outcome(what.status);
    if (what.topology) {
      out += ", rank " + std::to_string(what.topology->rank) + " of " +
             std::to_string(what.topology->members.size()) + " in epoch " +
             text(what.topology->epoch);
    }
    if (what.pending) out += ", pending";
    if (what.elsewhere) out += ", elsewhere";
    for (uint32_t state_key : what.install) out += ", install " + std::to_string(state_key);
    if (what.drifted) out += ", drifted";
    return out;
  }
  static std::string line(const Gone& what) { return "gone: " + outcome(what.why); }
  static std::string line(const Log& what) {
    return std::string(what.level == LogLevel::kWarning ? "warn: " : "info: ") + what.text;
  }

 private:
  static std::string number(Handle handle) { return "call " + std::to_string(handle); }
  static std::string outcome(const Status& status) {
    return status.ok() ? "ok" : std::string(text(status.code)) + ": " + status.message;
  }
  static std::string text(OpKey op) {
    for (const char* known : {"", "a", "b"}) {
      if (op.tag == tag_id(known)) return std::string(known) + "#" + std::to_string(op.sequence);
    }
    return "?#" + std::to_string(op.sequence);
  }
  static std::string text(PeerId peer) { return pccl::text(peer); }
  static std::string text(Epoch epoch) { return pccl::text(epoch); }
  static std::string text(Code code) { return pccl::text(code); }

  template <typename M>
  static std::string detail(const M&) {
    return "";
  }
  static std::string detail(const protocol::Begin& what) {
    return " " + text(what.op) + " " + protocol::text(what.info);
  }
  static std::string detail(const protocol::Regroup& what) {
    const std::string& refusal = what.with.refusal;
    return " " + std::to_string(what.with.uuid) + (refusal.empty() ? "" : ": " + refusal);
  }
  static std::string detail(const protocol::Done& what) {
    return " " + text(what.op) +
           (what.verdict_index > 0 ? ", seen " + std::to_string(what.verdict_index) : "");
  }
  static std::string detail(const protocol::Blocked& what) {
    std::string out = what.certain ? " for certain" : "";
    for (const OpKey op : what.ops) out += " " + text(op);
    return out + (what.joint ? " joint" : "") + (what.threads ? ", several threads" : "");
  }
  static std::string detail(const protocol::AwaitSend& what) {
    return " " + std::to_string(what.count) + " under '" + what.tag + "' in " + text(what.epoch);
  }
  static std::string detail(const protocol::AbortRequest& what) {
    return " " + text(what.op) + ", " + pccl::text(what.code) + ": " + what.text;
  }
  static std::string detail(const protocol::AbortAnswer& what) {
    const char* states[] = {"not done", "done", "returned"};
    return " " + text(what.op) + " " + states[static_cast<int>(what.state)];
  }
  static std::string detail(const protocol::LinkReport& what) {
    const char* states[] = {"up", "down", "unreachable"};
    return " " + text(what.peer) + " " + states[static_cast<int>(what.state)];
  }
  static std::string detail(const protocol::LinkRates& what) {
    std::string out;
    for (const auto& [peer, rate] : what.links)
      out += " " + text(peer) + " " + std::to_string(rate);
    return out;
  }
  static std::string detail(const protocol::Vote& what) {
    return " " + std::to_string(what.number) + " " + protocol::text(what.kind) + " of " +
           text(what.epoch) + (what.background ? " in the background" : "");
  }
  static std::string detail(const protocol::JointAbort& what) {
    return " " + std::to_string(what.number) + " of " + text(what.epoch);
  }
  static std::string detail(const protocol::StateList& what) {
    return " " + std::to_string(what.number) + " of " + text(what.epoch) + ": " +
           std::to_string(what.entries.size()) + " entries";
  }
  static std::string detail(const protocol::ProbeReport& what) {
    return " " + std::to_string(what.round) + " with " + text(what.peer) + ": " +
           std::to_string(what.bytes) + " bytes in " + std::to_string(what.milliseconds) + " ms";
  }
  static std::string detail(const protocol::Fetched& what) {
    return " " + std::to_string(what.number) + (what.code == Code::kOk ? "" : ": " + what.text);
  }
  static std::string detail(const protocol::StateReport& what) { return reports(what.ops); }
  static std::string detail(const protocol::Resume& what) {
    std::string out = " in epoch " + text(what.epoch) + (what.ended ? " (ended)" : "") +
                      (what.needs_reconfiguration ? ", reconfigures" : "") + reports(what.ops) +
                      ", seen " + std::to_string(what.verdict_index) + ", answered " +
                      std::to_string(what.joint_answered);
    if (what.last_answer) out += " and remembers " + std::to_string(what.last_answer->number);
    return out;
  }
  static std::string detail(const protocol::Ping& what) {
    return " " + std::to_string(what.counter) + ", seen " + std::to_string(what.verdict_index);
  }
  static std::string detail(const protocol::Pong& what) {
    return " " + std::to_string(what.counter);
  }
  static std::string reports(const std::vector<protocol::OpReport>& ops) {
    const char* states[] = {"not done", "done", "returned"};
    std::string out;
    for (const protocol::OpReport& op : ops) {
      out += ", " + text(op.op) + " " + states[static_cast<int>(op.state)];
      if (op.finished > 0) out += " " + std::to_string(op.finished);
    }
    return out;
  }

  PeerCore core_;
  SyncProgress progress_;
  int looks_ = 0;
  OpJudged judged_;
  Instant now_{std::chrono::seconds(1000)};
};

}  // namespace pccl::peer
