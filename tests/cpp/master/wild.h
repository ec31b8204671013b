// wild: random walks of a MasterCore.
// Peers come, vote, break their connections, resume and leave. They send what is sensible, what
// comes too late, or anything at all. The disk answers at any time.
// Invariants:
// 1. No assertion fails.
// 2. Everything that is sent can be encoded and goes to an open connection.
// 3. No peer learns of an epoch before it is durable.
// 4. All peers that learn how an operation ended learn the same.
// 5. When all peers are gone, nothing is left.

#pragma once

#include <map>
#include <set>

#include "master/group/groups.h"
#include "master/runs/journal.h"
#include "tests/cpp/chance.h"
#include "tests/cpp/master/harness.h"
#include "tests/cpp/protocol/random_message.h"

namespace pccl::master {

using protocol::JointKind;

class Wild {
 public:
  // `lies`: members also flood the core with invented messages.
  explicit Wild(Chance chance, bool lies = false)
      : random_(std::move(chance)), lies_(lies), core_({"run", kRunId, kIncarnation, false}) {
    if (once_in(2)) given_.call_timeout = std::chrono::seconds(1);
  }

  // Starts with a group of `founders` members. Steps that need no decision happen at once.
  void found(uint32_t founders) {
    founders_ = founders;
    quick_ = true;
    while (peers_.size() < founders) appear();
    hurry();
  }
  void run(int steps) {
    for (int i = 0; i < steps && !random_.over(); ++i) {
      anything();
      if (quick_) hurry();
    }
    if (once_in(2)) end_well();
    for (Peer& peer : peers_) {
      if (peer.connected) say(peer, protocol::Leave{});
      if (peer.connected) close(peer);
    }
    while (!persists_.empty()) persisted();
    for (int i = 0; i <= protocol::kTicksPerTimeout; ++i) tick();
    while (!persists_.empty()) persisted();
    tick();
    EXPECT_FALSE(core_.deadline().has_value()) << "somebody is still waited for";
  }
  size_t count(const std::string& what) const {
    return counts_.contains(what) ? counts_.at(what) : 0;
  }

 private:
  struct Peer {
    ConnectionId connection;
    uint64_t number = 0;  // among all peers, from 1
    bool connected = false, greeted = false, registered = false, gone = false;
    bool mute = false;    // paused, though connected
    uint64_t pinged = 0;  // counter of the last Ping on this connection
    PeerId id;
    protocol::EpochStart start;  // the last one received
    bool proposals = false, ended = false, continuation = false;
    uint64_t verdicts_seen = 0;
    std::vector<protocol::Verdict> verdicts;  // the last of them
    std::map<OpKey, protocol::OpInfo> open;   // begun, without a verdict
    std::set<OpKey> done, again;              // of `open`; again: to begin in the continuation
    std::map<uint64_t, uint32_t> begun;       // number of calls by tag
    uint32_t votes = 0, answered = 0, floods = 0;
    std::optional<protocol::Vote> vote;
    std::optional<uint32_t> to_fetch;
    std::optional<protocol::Probe> probe;
  };

  uint64_t below(uint64_t bound) { return random_.below(bound); }
  bool once_in(uint64_t count) { return random_.once_in(count); }
  Epoch epoch_of(const Peer& peer) const { return peer.start.epoch; }

  // ---- Events ----
  void anything() {
    random_.next_event();
    const uint64_t what = below(240);
    if (what < 40 && !persists_.empty()) return persisted();
    if (what < 48) return tick();
    if (what < 80 && !plans_.empty()) return planned();
    if (peers_.empty() || (what < 52 && peers_.size() < 40)) return appear();
    if (lies_ && what < 64) return flood();
    if (lies_ && what < 66) return regroup();
    if (what < 84) {
      const uint64_t choice = below(8);
      return everybody([&](Peer& peer) { act(peer, choice); });
    }
    Peer& peer = some_peer();
    if (peer.gone || peer.mute) return;
    if (!peer.connected) return what % 3 == 0 ? connect(peer) : void();
    if (what < 86) return close(peer);
    if (what < 87) return say(peer, anything_at_all());
    act(peer, below(8));
  }
  // Some of the members have called a reconfigure, though they do not keep its rules.
  void regroup() {
    if (regroups_) return;
    RegroupAgreed agreed{7, {}};
    for (const Peer& peer : peers_) {
      const bool is_member = peer.connected && core_.view().rank_of(peer.connection);
      if (is_member && !once_in(3)) agreed.members.push_back(peer.connection);
    }
    if (agreed.members.empty()) return;
    if (once_in(2)) std::reverse(agreed.members.begin(), agreed.members.end());
    if (once_in(20)) agreed.members.push_back({connections_ + 1});
    regroups_ = true;
    step(agreed);
  }
  // The process of the master ends, while everything still happens. Peers that can confirm what
  // they have received do so.
  void end_well() {
    step(Draining{});
    for (int i = 0; i < 300; ++i) {
      anything();
      for (Peer& peer : peers_) {
        if (speaks(peer) && peer.proposals && !peer.ended) say(peer, report(peer));
        if (!speaks(peer) || peer.pinged == 0) continue;
        say(peer,
            protocol::Pong{std::exchange(peer.pinged, 0), peer.verdicts_seen, epoch_of(peer)});
      }
      step(Draining{});
    }
  }
  // One of the peers that came last; older ones are mostly gone.
  Peer& some_peer() {
    return peers_[peers_.size() - 1 - below(std::min<size_t>(peers_.size(), 6))];
  }
  template <typename F>
  void everybody(F act) {
    const size_t count = std::min<size_t>(peers_.size(), 6);
    for (size_t i = peers_.size() - count; i < peers_.size(); ++i) act(peers_[i]);
  }
  void appear() {
    Peer& peer = peers_.emplace_back();
    peer.number = peers_.size();
  }
  static bool speaks(const Peer& peer) {
    return peer.connected && peer.greeted && !peer.gone && !peer.mute;
  }
  void act(Peer& peer, uint64_t choice) {
    if (!speaks(peer)) return;
    if (const auto message = sensible(peer, choice)) say(peer, *message);
  }
  // Does at once all that needs no decision: peers connect, the disk answers, newcomers register
  // and dial.
  void hurry() {
    for (Peer& peer : peers_) {
      if (!peer.connected && !peer.gone && !peer.mute) connect(peer);
    }
    for (bool busy = true; busy;) {
      busy = !persists_.empty();
      while (!persists_.empty()) persisted();
      while (!plans_.empty()) planned();
      for (Peer& peer : peers_) {
        const bool owes = !peer.registered || !dials_[peer.id].empty();
        if (!owes || !speaks(peer)) continue;
        act(peer, 0);
        busy = true;
      }
    }
  }
  void tick() {
    now_ = now_ + kTick;
    for (Peer& peer : peers_) {
      peer.mute = peer.connected && (peer.mute || once_in(100));
      if (peer.greeted && !peer.mute) say(peer, ping(peer));
    }
    if (once_in(20)) step(Watched{});
    step(TimePassed{});
  }
  void persisted() {
    const uint64_t token = persists_.front();
    persists_.pop_front();
    durable_.insert(planned_.begin(), planned_.end());
    planned_.clear();
    step(Persisted{token});
  }
  void planned() {
    const PlanRing plan = plans_.front();
    plans_.pop_front();
    step(RingPlanned{plan.group, plan.token, topology::fastest_plan(*plan.question)});
    ++counts_["plan"];
  }
  void connect(Peer& peer) {
    peer.connection = {++connections_};
    peer.connected = true;
    peer.pinged = 0;
    step(Accepted{peer.connection, "10.0.0.1", false});
    if (peer.id) return say(peer, resume(peer));
    protocol::Hello hello = Harness::hello(2);
    hello.founders = founders_;
    // From some peer on, all leave out the settings, and those of the run stay.
    if (!core_.view().is_idle() && once_in(8)) given_ = {};
    hello.settings = given_;
    say(peer, hello);
  }
  void close(Peer& peer) {
    peer.connected = peer.greeted = false;
    step(Closed{peer.connection, "reset"});
  }
  void say(Peer& peer, protocol::Message message) {
    if (std::holds_alternative<protocol::Leave>(message)) peer.gone = true;
    step(Received{peer.connection, std::move(message)});
  }
  // One member, or all of them, send the same kind of message again and again, with running
  // numbers. Each uses a tag of its own for what it invents, or all use the same tag.
  void flood() {
    constexpr uint64_t kCounts[] = {1, 40, 66, 131};  // the fuzz targets have limits of 65 and 130
    const uint64_t kind = below(7), count = kCounts[below(4)];
    const bool own = !once_in(3), long_text = once_in(2);
    if (once_in(3)) return flood(some_peer(), kind, count, own, long_text);
    everybody([&](Peer& peer) { flood(peer, kind, count, own, long_text); });
  }
  void flood(Peer& peer, uint64_t kind, uint64_t count, bool own, bool long_text) {
    const std::string tag = own ? "f" + std::to_string(peer.number) : "f";
    if (kind == 0) {
      if (!peer.proposals || !speaks(peer)) return;
      protocol::StateReport invented = std::get<protocol::StateReport>(report(peer));
      while (invented.ops.size() < std::min<uint64_t>(count, protocol::kOpsOpenMax))
        invented.ops.push_back({op(peer.floods++, tag), protocol::OpState::kReturned});
      return say(peer, invented);
    }
    for (uint64_t i = 0; i < count && speaks(peer); ++i) {
      const OpKey key = op(peer.floods++, tag);
      switch (kind) {
        case 1:
        case 6: say(peer, protocol::Begin{epoch_of(peer), key, all_reduce(8, tag)}); break;
        case 2: say(peer, protocol::Done{epoch_of(peer), key, 0}); break;
        case 3:
          say(peer, protocol::AbortRequest{epoch_of(peer), key, Code::kMismatch,
                                           std::string(long_text ? 300 : 0, 'x')});
          break;
        case 4:
          say(peer, protocol::LinkReport{peer_id(static_cast<uint32_t>(i)),
                                         protocol::LinkState::kDown, "so", peer.floods});
          break;
        default: say(peer, protocol::Ping{i, peer.verdicts_seen, epoch_of(peer)});
      }
    }
  }
  protocol::Message anything_at_all() {
    protocol::Message message = protocol::random_message(random_);
    if (auto* hello = std::get_if<protocol::Hello>(&message)) hello->versions = protocol::kSpoken;
    return message;
  }

  // ---- Peers that make sense ----
  protocol::Message ping(const Peer& peer) const {
    return protocol::Ping{1, peer.verdicts_seen, epoch_of(peer)};
  }
  protocol::Message resume(Peer& peer) {
    protocol::Resume resume;
    resume.run = "run";
    resume.run_id = kRunId;
    resume.peer = peer.id;
    resume.epoch = epoch_of(peer);
    resume.ended = peer.ended;
    resume.verdict_index = peer.verdicts_seen;
    resume.stable_index = peer.verdicts_seen - peer.verdicts.size();
    resume.verdicts = peer.verdicts;
    resume.joint_answered = peer.answered;
    for (const auto& [op, info] : peer.open) {
      if (peer.again.contains(op)) continue;
      const bool done = peer.done.contains(op);
      resume.ops.push_back({op, done ? protocol::OpState::kDone : protocol::OpState::kNotDone});
      resume.infos.push_back(info);
    }
    const Epoch generation = peer.start.generation;
    for (auto at = outcomes_.lower_bound({generation, {}}); at != outcomes_.end(); ++at) {
      const auto& [of, op] = at->first;
      if (of != generation) break;
      const bool uncalled = op.sequence >= peer.begun[op.tag.value];
      if (uncalled && at->second.heard.contains(peer.id)) resume.uncalled.push_back({op, {}, {}});
    }
    ++counts_["resume"];
    return resume;
  }
  std::optional<protocol::Message> sensible(Peer& peer, uint64_t choice) {
    if (!peer.registered) {
      peer.registered = true;
      return protocol::Register{"", static_cast<uint16_t>(1000 + (peer.id.value & 0xff))};
    }
    if (!dials_[peer.id].empty()) {
      const PeerId other = dials_[peer.id].front();
      dials_[peer.id].pop_front();
      if (!once_in(40)) {
        return protocol::LinkReport{other, protocol::LinkState::kUp, "", ++connections_made_};
      }
      dials_[peer.id].push_back(other);
      return protocol::LinkReport{other, protocol::LinkState::kUnreachable, "so", 0};
    }
    if (once_in(300) && !peer.start.members.empty()) {
      const auto& members = peer.start.members;
      const PeerId other = members[below(members.size())].peer;
      if (other == peer.id) return std::nullopt;
      return protocol::LinkReport{other, protocol::LinkState::kDown, "so", connections_made_};
    }
    if (once_in(400)) return protocol::Leave{};
    if (!epoch_of(peer)) return std::nullopt;
    if (peer.proposals && !peer.ended && once_in(2)) return report(peer);
    if (!peer.proposals && !peer.again.empty()) {
      const OpKey op = *peer.again.begin();
      peer.again.erase(op);
      return protocol::Begin{epoch_of(peer), op, peer.open.at(op)};
    }
    if (!peer.again.empty()) return ping(peer);
    if (!peer.proposals && peer.vote && peer.vote->epoch != epoch_of(peer)) {
      peer.vote->epoch = epoch_of(peer);
      return *peer.vote;
    }
    switch (choice) {
      case 0:
      case 1: return begin(peer);
      case 2:
      case 3: return done(peer);
      case 4: return give_up(peer);
      case 5: return vote(peer);
      case 6:
        if (!peer.to_fetch) return std::nullopt;
        if (once_in(2)) return protocol::Fetching{*peer.to_fetch};
        return protocol::Fetched{*peer.to_fetch, once_in(8) ? Code::kSystem : Code::kOk, "so"};
      default:
        if (!peer.probe && once_in(30)) return blocked(peer);
        if (!peer.probe && once_in(30)) return telemetry();
        if (!peer.probe) return ping(peer);
        return report(*std::exchange(peer.probe, std::nullopt));
    }
  }
  // It waits in two operations at most, and in its joint call. It may continue at any time.
  protocol::Message blocked(const Peer& peer) {
    protocol::Blocked report{epoch_of(peer), {}, peer.vote.has_value(), once_in(2), once_in(4)};
    for (const auto& [op, info] : peer.open) {
      if (report.ops.size() < 2) report.ops.push_back(op);
    }
    return report;
  }
  protocol::Message telemetry() {
    protocol::Telemetry made;
    made.all_us = below(1000);
    return made;
  }
  protocol::Message report(const protocol::Probe& probe) {
    const uint64_t bytes = once_in(10) ? 0 : 1'000'000 * (1 + below(1000));
    return protocol::ProbeReport{probe.round, probe.peer, bytes, probe.milliseconds};
  }
  protocol::Message report(const Peer& peer) {
    protocol::StateReport report{epoch_of(peer), {}};
    for (const auto& [op, info] : peer.open) {
      if (peer.again.contains(op)) continue;
      const bool done = peer.done.contains(op);
      report.ops.push_back({op, done ? protocol::OpState::kDone : protocol::OpState::kNotDone});
    }
    return report;
  }
  std::optional<protocol::Message> begin(Peer& peer) {
    if (peer.ended || peer.proposals || peer.vote || peer.open.size() > 5) return std::nullopt;
    const std::string tag = once_in(3) ? "a" : "";
    const OpKey key = op(peer.begun[tag_id(tag).value]++, tag);
    protocol::OpInfo info = all_reduce(once_in(40) ? 9 : 8, tag);
    info.world_size = static_cast<uint32_t>(peer.start.members.size());
    if (key.sequence % 5 == 4) info.kind = protocol::OpKind::kBarrier;
    const auto settled = outcomes_.find({peer.start.generation, key});
    const bool over = settled != outcomes_.end() && settled->second.heard.contains(peer.id);
    if (!over) peer.open[key] = info;
    return protocol::Begin{epoch_of(peer), key, info};
  }
  std::optional<protocol::Message> done(Peer& peer) {
    for (const auto& [op, info] : peer.open) {
      if (peer.done.contains(op) || once_in(3)) continue;
      if (peer.proposals) return std::nullopt;
      peer.done.insert(op);
      return protocol::Done{epoch_of(peer), op, peer.verdicts_seen};
    }
    return std::nullopt;
  }
  std::optional<protocol::Message> give_up(const Peer& peer) {
    if (peer.vote && once_in(20)) {
      return protocol::JointAbort{peer.vote->number, peer.vote->epoch};
    }
    if (peer.open.empty() || !once_in(10)) return std::nullopt;
    return protocol::AbortRequest{epoch_of(peer), peer.open.begin()->first, Code::kOperationTimeout,
                                  ""};
  }
  std::optional<protocol::Message> vote(Peer& peer) {
    if (peer.vote) return once_in(3) ? std::optional<protocol::Message>(*peer.vote) : std::nullopt;
    if (peer.proposals && !(peer.ended && !peer.continuation)) return std::nullopt;
    constexpr JointKind kKinds[] = {JointKind::kUpdateTopology, JointKind::kSyncSharedState,
                                    JointKind::kArePeersPending, JointKind::kOptimizeTopology};
    protocol::Vote vote;
    vote.number = peer.votes++;
    vote.kind = peer.ended || once_in(30) ? JointKind::kUpdateTopology : kKinds[vote.number % 4];
    if (vote.kind == JointKind::kSyncSharedState) vote.offer = offer(0, {once_in(3) ? 2u : 1u});
    if (vote.kind == JointKind::kOptimizeTopology) {
      vote.budget_ms = once_in(30) ? 0 : 2000;
      vote.max_bytes = once_in(200) ? 0 : 2 * protocol::kProbesBytesMin;
    }
    vote.epoch = peer.start.epoch;
    peer.vote = vote;
    return vote;
  }

  // ---- Invariants ----
  void step(const Event& event) {
    Effects effects;
    core_.step(event, now_, effects);
#ifdef NDEBUG  // otherwise step() has checked it
    core_.check();
#endif
    for (const Effect& effect : effects) {
      if (const auto* send = std::get_if<Send>(&effect)) {
        on(send->connection, send->message);
      } else if (const auto* close = std::get_if<Close>(&effect)) {
        Peer* peer = find(close->connection);
        ASSERT_NE(peer, nullptr) << "closed twice";
        peer->connected = peer->greeted = false;
      } else if (const auto* plan = std::get_if<PlanRing>(&effect)) {
        plans_.push_back(*plan);
      } else if (const auto* persist = std::get_if<Persist>(&effect)) {
        persists_.push_back(persist->token);
        remember(persist->record);
        const auto* membership = std::get_if<MembershipRecord>(&persist->record);
        if (membership != nullptr) planned_.insert(membership->current.epoch);
      } else if (const auto* over = std::get_if<RegroupOver>(&effect)) {
        EXPECT_TRUE(std::exchange(regroups_, false));
        ++counts_[over->begun ? "regroup" : "regroup that fails"];
        const Group* const group = core_.view().groups.find({});
        if (over->begun) regrouped_.insert(group->view().present.number());
      }
    }
  }
  // A record can be written and read back.
  void remember(const Record& record) {
    const RunRecorded entry{"run", record};
    std::vector<std::byte> file = journal::header();
    journal::append({RunOpened{"run", kRunId, {}}, entry}, file);
    auto replayed = journal::replay(file);
    ASSERT_TRUE(replayed.ok()) << replayed.status().message;
    auto again = journal::replay(journal::compacted(replayed.value().memory));
    ASSERT_TRUE(again.ok()) << again.status().message;
    EXPECT_EQ(again.value().memory, replayed.value().memory);
  }
  Peer* find(ConnectionId connection) {
    for (Peer& peer : peers_) {
      if (peer.connected && peer.connection == connection) return &peer;
    }
    return nullptr;
  }
  void on(ConnectionId connection, const protocol::Message& message) {
    Peer* peer = find(connection);
    ASSERT_NE(peer, nullptr) << protocol::name(message) << " to a closed connection";
    std::vector<std::byte> bytes;
    protocol::encode(message, bytes);
    ++counts_[protocol::name(message)];
    std::visit([&](const auto& content) { heard(*peer, content); }, message);
  }
  void heard(Peer& peer, const protocol::Welcome& welcome) {
    peer.id = welcome.peer;
    peer.greeted = true;
  }
  void heard(Peer& peer, const protocol::Resumed&) { peer.greeted = true; }
  void heard(Peer& peer, const protocol::Reject&) { peer.gone = true; }
  void heard(Peer& peer, const protocol::Kicked& kicked) {
    peer.gone = true;
    counts_["late"] += kicked.text.find("it was late") != std::string::npos;
  }
  void heard(Peer& peer, const protocol::Farewell&) {
    EXPECT_TRUE(peer.ended || !epoch_of(peer)) << "dismissed from an epoch";
    peer.gone = true;
  }
  void heard(Peer& peer, const protocol::Probe& probe) { peer.probe = probe; }
  void heard(Peer& peer, const protocol::Ping& ping) { peer.pinged = ping.counter; }
  void heard(Peer& peer, const protocol::Dial& dial) { dials_[peer.id].push_back(dial.peer); }
  void heard(Peer& peer, const protocol::EpochStart& start) {
    EXPECT_GT(start.epoch, epoch_of(peer));
    EXPECT_TRUE(durable_.contains(start.epoch)) << "told before it was durable";
    const bool renews = peer.ended && peer.continuation;
    EXPECT_EQ(start.generation, renews ? peer.start.generation : start.epoch);
    EXPECT_TRUE(!epoch_of(peer) || peer.vote || renews || regroups_ ||
                regrouped_.contains(start.epoch))
        << "began without a vote";
    EXPECT_TRUE(std::any_of(start.members.begin(), start.members.end(),
                            [&](const auto& member) { return member.peer == peer.id; }));
    const auto [at, fresh] = starts_.try_emplace(start.epoch, start);
    EXPECT_EQ(at->second, start) << "members of an epoch heard different things";
    peer.start = start;
    peer.proposals = peer.ended = peer.continuation = false;
    peer.verdicts_seen = 0;
    peer.verdicts.clear();
    peer.to_fetch.reset();
    if (renews) return;
    peer.votes = peer.answered = 0;
    peer.open.clear();
    peer.again.clear();
    peer.done.clear();
    peer.begun.clear();
    peer.vote.reset();
  }
  void heard(Peer& peer, const protocol::FreezeRequest& ask) {
    EXPECT_EQ(ask.epoch, epoch_of(peer));
    peer.proposals = true;
  }
  void heard(Peer& peer, const protocol::Verdicts& verdicts) {
    EXPECT_EQ(verdicts.epoch, epoch_of(peer));
    EXPECT_EQ(verdicts.first_index, peer.verdicts_seen) << "a verdict was left out, or told twice";
    for (const protocol::Verdict& verdict : verdicts.verdicts) {
      ++peer.verdicts_seen;
      peer.verdicts.push_back(verdict);
      const size_t kept = std::min<size_t>(peer.verdicts.size(), verdict.unacknowledged + 1);
      peer.verdicts.erase(peer.verdicts.begin(), peer.verdicts.end() - static_cast<long>(kept));
    }
    for (const protocol::Verdict& verdict : verdicts.verdicts) {
      settle(peer, verdict.op, verdict.outcome, text(verdict.code) + verdict.text);
    }
  }
  void heard(Peer& peer, const protocol::EpochEnd& end) {
    EXPECT_EQ(end.epoch, epoch_of(peer));
    EXPECT_FALSE(peer.ended);
    peer.proposals = peer.ended = true;
    peer.continuation = end.continuation != protocol::Continuation::kNothing;
    if (peer.continuation) ++counts_["reconfiguration"];
    const auto open = peer.open;
    for (const auto& [op, info] : open) {
      const bool committed =
          std::find(end.committed.begin(), end.committed.end(), op) != end.committed.end();
      if (peer.continuation && !committed) {
        peer.again.insert(op);
        peer.done.erase(op);
        continue;
      }
      settle(peer, op, committed ? protocol::Outcome::kCommitted : protocol::Outcome::kAborted,
             committed ? "ok" : end.text);
    }
  }
  void heard(Peer& peer, const protocol::Answer& answer) {
    ASSERT_TRUE(peer.vote.has_value()) << "an answer to nothing";
    EXPECT_EQ(answer.number, peer.vote->number);
    EXPECT_EQ(answer.kind, peer.vote->kind);
    peer.answered = answer.number + 1;
    peer.vote.reset();
    peer.to_fetch.reset();
    ++counts_[std::string("answer ") + text(answer.code)];
  }
  void heard(Peer& peer, const protocol::SyncPlan& plan) {
    ASSERT_TRUE(peer.vote.has_value());
    for (const PeerId receiver : plan.receivers) {
      if (receiver == peer.id) peer.to_fetch = plan.number;
    }
  }
  template <typename M>
  void heard(Peer&, const M&) {}

  void settle(Peer& peer, OpKey op, protocol::Outcome outcome, const std::string& why) {
    const auto [at, fresh] =
        outcomes_.try_emplace({peer.start.generation, op}, Settled{outcome, why, {}});
    EXPECT_EQ(at->second.outcome, outcome);
    EXPECT_TRUE(outcome == protocol::Outcome::kCommitted || at->second.why == why) << why;
    EXPECT_TRUE(at->second.heard.insert(peer.id).second) << "heard twice";
    EXPECT_TRUE(outcome == protocol::Outcome::kAborted || peer.done.contains(op) || lies_)
        << "committed though this one has not finished it";
    peer.open.erase(op);
    peer.again.erase(op);
    ++counts_[outcome == protocol::Outcome::kCommitted ? "commit" : "abort"];
  }

  struct Settled {
    protocol::Outcome outcome;
    std::string why;
    std::set<PeerId> heard;
  };
  Chance random_;
  const bool lies_;
  bool quick_ = false;
  bool regroups_ = false;      // a reconfigure is under way
  std::set<Epoch> regrouped_;  // epochs that one has begun
  uint32_t founders_ = 3;
  protocol::GivenSettings given_;
  MasterCore core_;
  Instant now_{std::chrono::seconds(1000)};
  uint64_t connections_ = 0;
  uint32_t connections_made_ = 0;  // serial of the last link connection
  std::deque<Peer> peers_;
  std::map<PeerId, std::deque<PeerId>> dials_;
  std::deque<uint64_t> persists_;
  std::deque<PlanRing> plans_;
  std::set<Epoch> planned_, durable_;
  std::map<Epoch, protocol::EpochStart> starts_;
  std::map<std::pair<Epoch, OpKey>, Settled> outcomes_;
  std::map<std::string, size_t> counts_;
};

}  // namespace pccl::master
