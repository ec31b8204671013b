// Harness: a MasterCore with peers that are only names. It feeds events to the core and prints each
// effect as one line, so that a test reads like a story and fails like one:
//   "a < EpochStart 1.1 [a b] joined [a b]"
// Log effects are kept apart. Persist is answered at once, unless the test holds it back.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "csrc/protocol/codec.h"
#include "csrc/protocol/state.h"
#include "master/core.h"
#include "master/epochs/decision_mac.h"
#include "master/run_view.h"
#include "master/topology/planner.h"

namespace pccl::master {

inline constexpr uint32_t kIncarnation = 1;
inline constexpr uint64_t kRunId = 7;
inline constexpr Duration kTick = std::chrono::milliseconds(500);

inline Epoch epoch(uint32_t counter) { return {(uint64_t{kIncarnation} << 32) | counter}; }
inline PeerId peer_id(uint32_t counter) { return {(uint64_t{kIncarnation} << 32) | counter}; }
inline OpKey op(uint32_t sequence, const std::string& tag = "") { return {tag_id(tag), sequence}; }

inline constexpr PeerId kA{1}, kB{2}, kC{3};  // peers of tests without a Harness
inline constexpr auto kPending = protocol::JointKind::kArePeersPending;
inline constexpr auto kSync = protocol::JointKind::kSyncSharedState;
inline constexpr auto kReceive = protocol::SyncStrategy::kReceiveOnly;
inline constexpr auto kSendOnly = protocol::SyncStrategy::kSendOnly;

// The end of an error about two peers of which neither can dial the other.
inline const std::string kWhatToOpen =
    ". One of the two has to accept connections: open a port of its machine (PCCL_PORT_RANGE), or "
    "forward one at its router (PCCL_ADVERTISE): docs/running.md, section 7";

inline protocol::Verdict committed(uint32_t sequence) {
  return {op(sequence), protocol::Outcome::kCommitted, Code::kOk, ""};
}
inline protocol::Verdict aborted(uint32_t sequence, std::string text = "") {
  return {op(sequence), protocol::Outcome::kAborted, Code::kMismatch, std::move(text)};
}

inline protocol::OpInfo all_reduce(uint64_t count, const std::string& tag = "") {
  protocol::OpInfo info;
  info.count = count;
  info.world_size = 2;
  info.tag = tag;
  return info;
}

// A send among three members.
inline protocol::OpInfo transfer(PeerId from, PeerId to, uint64_t count = 0) {
  protocol::OpInfo info;
  info.kind = protocol::OpKind::kSend;
  info.count = count;
  info.root = from;
  info.receiver = to;
  info.world_size = 3;
  return info;
}

inline protocol::Offer offer(
    uint64_t revision, std::vector<uint64_t> hashes,
    protocol::SyncStrategy strategy = protocol::SyncStrategy::kEnforcePopular) {
  protocol::Offer offer{revision, strategy, {}};
  for (size_t i = 0; i < hashes.size(); ++i) {
    offer.entries.push_back({"k" + std::to_string(i), DType::kFloat32, {2, 3}, hashes[i]});
  }
  std::sort(offer.entries.begin(), offer.entries.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  return offer;
}

// The same with a digest instead of the entries.
inline protocol::Offer unlisted(protocol::Offer offer) {
  offer.digest = protocol::state_hash(offer.entries);
  offer.entries.clear();
  return offer;
}

class Harness {
 public:
  explicit Harness(uint16_t version = protocol::kSpoken.highest,
                   const std::optional<protocol::Key>& seed = {})
      : core_({"run", kRunId, kIncarnation, false, protocol::kOneShotBytesMax, version, seed}) {}

  MasterCore& core() { return core_; }
  PeerId id(const std::string& name) const { return ids_.at(name); }
  bool hold_persists = false;
  bool hold_searches = false;
  uint32_t rtt = 0;  // of the links that link_all() makes, in microseconds
  protocol::LossPolicy policy = protocol::LossPolicy::kRaise;          // of founders
  const std::vector<PlanRing>& searches() const { return searches_; }  // that are held
  size_t held() const { return held_.size(); }
  Instant now() const { return now_; }
  // The master's process is paused for this time.
  void be_stopped(Duration time) { now_ = now_ + time; }

  // ---- Events ----
  void step(const Event& event) {
    Effects effects;
    core_.step(event, now_, effects);
    // A test with very many operations would take long if it was checked after each step.
    if (++steps_ <= 500 || steps_ % 4096 == 0) core_.check();
    for (const Effect& effect : effects) note(effect);
    if (!hold_persists) release();
    if (!hold_searches) search();
  }
  // Finds the plans that were asked for.
  void search() {
    for (const PlanRing& one : std::exchange(searches_, {}))
      step(RingPlanned{one.group, one.token, topology::fastest_plan(*one.question)});
  }
  void release() {
    while (!held_.empty()) {
      const uint64_t token = held_.front();
      held_.pop_front();
      step(Persisted{token});
    }
  }
  void accept(const std::string& name, const std::string& host = "10.0.0.1", bool loopback = false,
              const std::optional<Holder>& holder = {}) {
    connections_[name] = {++connections_made_};
    names_[{connections_made_}] = name;
    step(Accepted{connections_[name], host, loopback, holder});
  }
  void say(const std::string& name, protocol::Message message) {
    step(Received{connections_.at(name), std::move(message)});
  }
  void close(const std::string& name) { step(Closed{connections_.at(name), "reset"}); }
  // The shell has closed the connection.
  void refuse(const std::string& name, const std::string& why) {
    step(Closed{connections_.at(name), why, true});
  }
  void tick(int count = 1) {
    for (int i = 0; i < count; ++i) {
      now_ = now_ + kTick;
      step(TimePassed{});
    }
  }
  // Ticks in which these peers ping the master, so that none of them is silent.
  void tick_with(const std::vector<std::string>& alive, int count = 1) {
    for (int i = 0; i < count; ++i) {
      for (const std::string& name : alive) say(name, protocol::Ping{++pings_, 0, {}});
      tick();
    }
  }

  // These members have called a reconfigure with the uuid 7.
  void regroup(const std::vector<std::string>& names) {
    RegroupAgreed agreed{7, {}};
    for (const std::string& name : names) agreed.members.push_back(connections_.at(name));
    step(agreed);
  }

  // SIGKILL and a restart from the durable records. Records that were held back are lost.
  void restart(const std::optional<protocol::Key>& seed = {}) {
    RunRecord run{kRunId, {}, {}};
    for (size_t i = 0; i + held_.size() < records_.size(); ++i) {
      if (const auto* record = std::get_if<MembershipRecord>(&records_[i])) {
        run.memberships[record->group] = *record;
      } else {
        const auto& state = std::get<SharedStateRecord>(records_[i]);
        run.shared_states[state.group] = state;
      }
    }
    restart(run, seed);
  }
  void restart(const RunRecord& run, const std::optional<protocol::Key>& seed = {}) {
    held_.clear();
    dials_.clear();
    lines_.clear();
    Options options{"run", kRunId, ++incarnation_, false};
    options.seed = seed;
    core_ = MasterCore(options, run);
    step(TimePassed{});
  }
  // The decisions in `resume` get their MACs.
  void come_back(const std::string& name, protocol::Resume resume) {
    accept(name);
    authenticate(resume, resume.epoch);
    say(name, std::move(resume));
  }
  static void authenticate(protocol::Resume& resume, Epoch generation) {
    uint64_t index = resume.stable_index;
    for (protocol::Verdict& verdict : resume.verdicts) {
      verdict.unacknowledged = static_cast<uint32_t>(index - resume.stable_index);
      verdict.mac = mac_of({}, resume.epoch, index++, verdict);
    }
    if (resume.last_answer) resume.last_answer->mac = mac_of({}, generation, *resume.last_answer);
  }

  // ---- Common beginnings ----
  static protocol::Hello hello(uint32_t min_peers, int32_t rank = -1, uint32_t group = 0) {
    protocol::Hello hello;
    hello.library = "pccl 0.1";
    hello.run = "run";
    hello.group = {group};
    hello.founders = hello.min_peers = min_peers;
    hello.rank = rank;
    return hello;
  }
  // Connects and sends Hello. enlist() then registers port 1000 + the peer's number.
  void greet(const std::string& name, const protocol::Hello& hello) {
    accept(name);
    say(name, hello);
  }
  void enlist(const std::string& name, const protocol::Hello& hello) {
    greet(name, hello);
    ASSERT_TRUE(ids_.contains(name)) << "no Welcome for " << name;
    say(name, protocol::Register{"", static_cast<uint16_t>(1000 + (ids_[name].value & 0xffff))});
  }
  // All peers that received a Dial carry it out, and succeed.
  void link_all() {
    while (!dials_.empty()) {
      const auto [name, dial] = dials_.front();
      dials_.pop_front();
      say(name, protocol::LinkReport{dial.peer, protocol::LinkState::kUp, "", 1, rtt});
    }
  }
  // Founds a group whose members are in rank order. The transcript starts after that.
  // `min_peers`: 0: all of them.
  void found(const std::vector<std::string>& names, uint32_t group = 0, uint32_t min_peers = 0) {
    const auto size = static_cast<uint32_t>(names.size());
    for (uint32_t rank = 0; rank < size; ++rank) {
      protocol::Hello founder = hello(size, static_cast<int32_t>(rank), group);
      if (min_peers > 0) founder.min_peers = min_peers;
      founder.settings.on_peer_loss = policy;
      enlist(names[rank], founder);
    }
    link_all();
    lines_.clear();
  }
  void vote(const std::string& name, Epoch epoch, uint32_t number,
            protocol::JointKind kind = protocol::JointKind::kUpdateTopology,
            protocol::Offer offer = {}) {
    say(name, protocol::Vote{number, kind, std::move(offer), epoch});
  }
  protocol::Resume resume(const std::string& name, Epoch epoch) const {
    protocol::Resume resume;
    resume.run = "run";
    resume.run_id = kRunId;
    resume.peer = id(name);
    resume.epoch = epoch;
    return resume;
  }

  // ---- Effects since the last call ----
  std::vector<std::string> take() {
    std::vector<std::string> lines;
    lines.swap(lines_);
    return lines;
  }
  // The same without messages about pings and links.
  std::vector<std::string> story() {
    std::vector<std::string> lines;
    for (std::string& line : take()) {
      bool boring = false;
      for (const char* word : {" < Ping", " < Pong", " < Dial", " < Forget"}) {
        boring |= line.find(word) != std::string::npos;
      }
      if (!boring) lines.push_back(std::move(line));
    }
    return lines;
  }
  std::vector<std::string> take_log() {
    std::vector<std::string> log;
    log.swap(log_);
    return log;
  }
  // The subjects of the lines in the log since the last call, with those of the level debug.
  std::vector<About> take_events() { return std::exchange(events_, {}); }
  // The texts of the warnings in the log since the last call.
  std::vector<std::string> warnings() {
    std::vector<std::string> warnings;
    warnings.swap(warnings_);
    return warnings;
  }
  // All messages that were sent to a peer, in order.
  const std::vector<protocol::Message>& sent(const std::string& name) { return sent_[name]; }
  // The last message of this type that was sent to a peer.
  template <typename M>
  const M* last(const std::string& name) const {
    const auto at = sent_.find(name);
    if (at == sent_.end()) return nullptr;
    for (auto message = at->second.rbegin(); message != at->second.rend(); ++message) {
      if (const M* found = std::get_if<M>(&*message)) return found;
    }
    return nullptr;
  }
  const std::vector<Record>& records() const { return records_; }

 private:
  void note(const Effect& effect) {
    if (const auto* send = std::get_if<Send>(&effect)) {
      const std::string& name = names_.at(send->connection);
      if (const auto* welcome = std::get_if<protocol::Welcome>(&send->message)) {
        ids_[name] = welcome->peer;
        people_[welcome->peer] = name;
      }
      if (const auto* dial = std::get_if<protocol::Dial>(&send->message)) {
        dials_.emplace_back(name, *dial);
      }
      if (const auto* answer = std::get_if<protocol::Answer>(&send->message)) {
        EXPECT_NE(answer->mac, 0u) << "no restarted master would believe it";
      }
      sent_[name].push_back(send->message);
      lines_.push_back(name + " < " + brief(send->message));
    } else if (const auto* close = std::get_if<Close>(&effect)) {
      lines_.push_back(names_.at(close->connection) + " closed");
    } else if (const auto* persist = std::get_if<Persist>(&effect)) {
      records_.push_back(persist->record);
      held_.push_back(persist->token);
      lines_.push_back("persist");
    } else if (const auto* plan = std::get_if<PlanRing>(&effect)) {
      searches_.push_back(*plan);
    } else if (const auto* over = std::get_if<RegroupOver>(&effect)) {
      lines_.push_back(over->begun ? "regrouped" : "not regrouped");
    } else {
      const Log& line = std::get<Log>(effect);
      events_.push_back(line.about);
      if (line.level == LogLevel::kDebug) return;
      log_.push_back(line.text);
      if (line.level == LogLevel::kWarning) warnings_.push_back(line.text);
    }
  }

  std::string who(PeerId peer) const {
    const auto at = people_.find(peer);
    return at == people_.end() ? text(peer) : at->second;
  }
  std::string list(const std::vector<PeerId>& peers) const {
    std::string out;
    for (const PeerId peer : peers) out += (out.empty() ? "" : " ") + who(peer);
    return "[" + out + "]";
  }
  std::string list(const std::vector<protocol::Member>& members) const {
    std::vector<PeerId> peers;
    for (const auto& member : members) peers.push_back(member.peer);
    return list(peers);
  }
  static std::string code(Code code, const std::string& why) {
    return std::string(text(code)) + (why.empty() ? "" : ": " + why);
  }

  std::string brief(const protocol::Message& message) const {
    const std::string name = protocol::name(message);
    if (const auto* m = std::get_if<protocol::EpochStart>(&message)) {
      return name + " " + text(m->epoch) + " " + list(m->members) + " joined " + list(m->joined) +
             (m->left.empty() ? "" : " left " + list(m->left));
    }
    if (const auto* m = std::get_if<protocol::FreezeRequest>(&message))
      return name + " lost " + list(m->lost);
    if (const auto* m = std::get_if<protocol::EpochEnd>(&message)) {
      std::string committed;
      for (const OpKey key : m->committed) committed += " #" + std::to_string(key.sequence);
      return name + " " + text(m->epoch) + " committed" + (committed.empty() ? " none" : committed);
    }
    if (const auto* m = std::get_if<protocol::Verdicts>(&message)) {
      std::string out = name + " " + std::to_string(m->first_index) + ":";
      for (const auto& verdict : m->verdicts) {
        const bool committed = verdict.outcome == protocol::Outcome::kCommitted;
        out += " #" + std::to_string(verdict.op.sequence) +
               (committed ? " committed" : std::string(" ") + text(verdict.code));
      }
      return out;
    }
    if (const auto* m = std::get_if<protocol::SendBegun>(&message))
      return name + " " + m->tag + "#" + std::to_string(m->sequence) + " of " + who(m->sender);
    if (const auto* m = std::get_if<protocol::AbortProposal>(&message))
      return name + " #" + std::to_string(m->op.sequence);
    if (const auto* m = std::get_if<protocol::Answer>(&message)) {
      return name + " " + std::to_string(m->number) + " " + text(m->kind) + " " + text(m->code) +
             (m->pending ? " pending" : "") +
             (m->revision ? " revision " + std::to_string(m->revision) : "");
    }
    if (const auto* m = std::get_if<protocol::SyncPlan>(&message)) {
      std::string out = name + ":";
      for (const PeerId peer : m->sources) out += " " + who(peer);
      out += " >";
      for (const PeerId peer : m->receivers) out += " " + who(peer);
      out += ":";
      for (const uint32_t key : m->keys) out += " " + std::to_string(key);
      return out + (m->gone.empty() ? "" : " gone: " + m->gone);
    }
    if (const auto* m = std::get_if<protocol::Probe>(&message)) {
      return name + " " + std::to_string(m->round) + " with " + who(m->peer) + " for " +
             std::to_string(m->milliseconds) + " ms";
    }
    if (const auto* m = std::get_if<protocol::Dial>(&message)) {
      return name + " " + who(m->peer) + " " + m->host + ":" + std::to_string(m->port);
    }
    if (const auto* m = std::get_if<protocol::Forget>(&message)) return name + " " + who(m->peer);
    if (const auto* m = std::get_if<protocol::Reject>(&message))
      return name + " " + code(m->code, m->text);
    if (const auto* m = std::get_if<protocol::Notice>(&message)) return name + " " + m->text;
    if (const auto* m = std::get_if<protocol::Kicked>(&message)) return name + " " + m->text;
    if (const auto* m = std::get_if<protocol::Regrouped>(&message))
      return name + " " + code(m->code, m->text);
    return name;
  }

  uint32_t incarnation_ = kIncarnation;
  MasterCore core_;
  Instant now_{};
  uint64_t steps_ = 0;
  uint64_t connections_made_ = 0;
  uint64_t pings_ = 0;
  std::map<std::string, ConnectionId> connections_;
  std::map<ConnectionId, std::string> names_;
  std::map<std::string, PeerId> ids_;
  std::map<PeerId, std::string> people_;
  std::map<std::string, std::vector<protocol::Message>> sent_;
  std::deque<std::pair<std::string, protocol::Dial>> dials_;
  std::deque<uint64_t> held_;
  std::vector<Record> records_;
  std::vector<PlanRing> searches_;
  std::vector<std::string> lines_, log_, warnings_;
  std::vector<About> events_;
};

using Lines = std::vector<std::string>;

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace pccl::master
