#include "tests/sim/driver.h"

#include <algorithm>
#include <cstdio>

#include "tests/sim/cluster.h"
#include "tests/sim/faults.h"
#include "tests/sim/reconfigures.h"

namespace pccl::sim {
namespace {

// Time limit after the faults have stopped: by then every peer must have finished two more turns.
// It takes kPeerTimeout to detect the loss of a silent peer, and losses may be detected one by one.
constexpr Duration kSettleMax = std::chrono::seconds(25);

// call_timeout of some runs: longer than a jump of the master's clock that nobody notices.
constexpr Duration kLateAfter = kPeerTimeout * 3 / 4;

// Time limit for the end of a master after the faults: by then every peer is dismissed.
constexpr Duration kEndMax = 2 * kPeerTimeout;

// Longest time for which peers dial a peer that is gone. By then it is declared lost, and all know
// it.
constexpr Duration kDialledMax = 4 * kPeerTimeout;

// The kind of run, derived from its seed.
struct Plan {
  WorldOptions world;
  Cluster::Rules rules;
  std::vector<Cluster::Group> groups;
  std::vector<size_t> peers;  // peers of each group at the beginning
};

// Half of the epochs of three members have unequal shares.
std::vector<uint16_t> some_shares(Random& random) {
  constexpr uint64_t kTotal = protocol::kSharesTotal;
  const uint64_t first = random.once_in(2) ? 0 : random.below(kTotal + 1);
  const uint64_t second = random.below(kTotal - first + 1);
  const size_t members = random.once_in(2) ? 3 : 2;
  std::vector<uint16_t> shares = {static_cast<uint16_t>(first), static_cast<uint16_t>(second)};
  if (members == 2) shares.back() = static_cast<uint16_t>(kTotal - first);
  if (members == 3) shares.push_back(static_cast<uint16_t>(kTotal - first - second));
  return shares;
}

WorldOptions world_options(const RunOptions& options, bool gentle) {
  WorldOptions world;
  Random random(options.seed ^ 0x5eed);
  if (random.once_in(3)) world.control_delay_max = std::chrono::milliseconds(20);
  if (random.once_in(3)) world.wire.piece_bytes_max = 1000;
  if (!random.once_in(3)) world.lanes_max = 3;
  constexpr uint32_t kExchanged[] = {0, 400, protocol::kOneShotBytesMax};
  world.one_shot_bytes = kExchanged[random.below(std::size(kExchanged))];
  if (random.once_in(4)) world.data_inbox_max = std::chrono::milliseconds(10);
  if (random.once_in(4)) world.disk_delay_max = std::chrono::milliseconds(50);
  if (random.once_in(4)) world.wire.delay_max = std::chrono::milliseconds(10);
  // Slow paths. They are excluded in gentle runs, in which a broken link must be rebuilt in time.
  if (random.once_in(6) && !gentle) {
    world.control_delay_max = std::chrono::milliseconds(100);
    world.wire = {.delay_min = std::chrono::milliseconds(1),
                  .delay_max = std::chrono::milliseconds(40)};
  }
  if (random.once_in(3)) world.rtt = 50'000;
  Random others(options.seed ^ 0x5a4e5);  // the runs of earlier seeds stay as they are
  world.shares = some_shares(others);
  world.rates = others.once_in(3);
  if (world.rates) world.rtt = 50'000;  // a path without an RTT is unknown
  world.plant = options.plant;
  world.both_dial = random.once_in(3);
  world.secured = !random.once_in(4) && options.plant != Bug::kAnyRun;
  world.elsewhere = random.once_in(2);
  world.devices = random.once_in(2) || options.devices;
  world.seed = options.seed;
  Random more(options.seed ^ 0xf1c5ed);
  world.fixed_world = more.once_in(2);
  return world;
}

// One group, in which some member may be lost at any time. It has at least two honest members.
void add_insider(uint64_t seed, Plan& plan) {
  Random random(seed ^ 0x1151de);
  // Under policy retry, an abort that no honest member asks for would not stop all programs alike.
  plan.rules.gentle = plan.rules.mortal = plan.rules.retries = false;
  plan.groups.resize(1);
  plan.groups[0] = {.founders = static_cast<uint32_t>(random.between(3, 5)), .min_peers = 1};
  plan.peers = {plan.groups[0].founders};
  plan.rules.insider = random.below(plan.peers[0]);
}

Plan plan_of(const RunOptions& options) {
  Plan plan;
  Random random(options.seed ^ 0x91a4);
  plan.rules.seed = options.seed;
  if (options.kill_at_step >= 0) {  // two peers found the group and admit the third
    plan.groups = {{.founders = 2, .min_peers = 2}};
    plan.peers = {3};
    plan.world = world_options(options, false);
    return plan;
  }
  plan.rules.gentle = random.once_in(4);
  plan.rules.retries = random.once_in(3);
  Random others(options.seed ^ 0xd12ec7);
  if (others.once_in(2)) {
    plan.rules.pattern = protocol::PatternChoice::kDirect;
  } else if (others.once_in(2)) {
    plan.rules.pattern = protocol::PatternChoice::kRing;
  }
  Random more(options.seed ^ 0x1a7e);
  if (more.once_in(2)) plan.rules.call_timeout = kLateAfter;
  plan.rules.mortal = !plan.rules.gentle && random.once_in(5);
  plan.groups.resize(random.once_in(4) ? 2 : 1);
  for (Cluster::Group& group : plan.groups) {
    const size_t peers = random.between(1, plan.groups.size() == 1 ? 5 : 3);
    plan.peers.push_back(peers);
    const size_t most = plan.rules.mortal ? 2 : 3;
    group.min_peers = static_cast<uint32_t>(random.between(1, std::min(peers, most)));
    group.founders = random.once_in(2) ? group.min_peers : static_cast<uint32_t>(peers);
  }
  const bool disturbed = !plan.rules.gentle && !plan.rules.mortal;
  plan.groups.back().quiet = plan.groups.size() == 2 && disturbed && random.once_in(2);
  if (options.insider != RunOptions::Insider::kNone) add_insider(options.seed, plan);
  plan.world = world_options(options, plan.rules.gentle || plan.groups.back().quiet);
  if (plan.rules.insider && Random(options.seed).once_in(2)) plan.world.rtt = 50'000;
  return plan;
}

class Driver {
 public:
  explicit Driver(const RunOptions& options) : Driver(options, plan_of(options)) {}
  RunReport run();
  const EventLoop& clock() const { return world_.event_loop(); }

 private:
  Driver(const RunOptions& options, const Plan& plan);
  void run_for(Duration duration);
  void loss_at_step(uint64_t step);
  void restarts_by_chance();
  void faults_by_chance();
  void settle();
  void check_links();
  void end_well();
  RunReport report();

  const RunOptions options_;
  const std::vector<size_t> peers_;
  Checker checker_;
  World world_;
  Cluster cluster_;
  Random chance_;
  Faults faults_;
  uint64_t losses_ = 0;
  std::map<GroupId, uint64_t> agreed_;
};

Driver::Driver(const RunOptions& options, const Plan& plan)
    : options_(options),
      peers_(plan.peers),
      world_(options.seed, plan.world),
      cluster_(world_, checker_, plan.rules, plan.groups),
      chance_(options.seed ^ 0xfa17),
      faults_(world_, cluster_, options.coverage, options.seed ^ 0xfa01) {
  world_.on_violation = [this](const std::string& text) { checker_.violation(text); };
  world_.on_record = [this](const master::Record& record) {
    const auto* state = std::get_if<master::SharedStateRecord>(&record);
    if (state == nullptr) return;
    uint64_t& last = agreed_[state->group];
    if (state->revision < last) {
      checker_.violation("P6 the agreed revision falls from " + std::to_string(last) + " to " +
                         std::to_string(state->revision));
    }
    last = state->revision;
  };
  if (options.transcript) {
    world_.on_note = [this](const std::string& line) {
      char head[32];
      std::snprintf(head, sizeof head, "[%10.6f] ",
                    to_seconds(world_.event_loop().now().since_start));
      options_.transcript(head + line);
    };
  }
}

void Driver::run_for(Duration duration) {
  const Instant until = world_.event_loop().now() + duration;
  while (world_.event_loop().run_one(until)) {
  }
}

// Kills one of the three peers at exactly that step.
void Driver::loss_at_step(uint64_t step) {
  while (world_.event_loop().steps() < step) {
    if (!world_.event_loop().run_one(Instant{std::chrono::seconds(30)})) break;
  }
  ++losses_;
  world_.peers()[options_.seed % 3]->kill("killed");
}

// Until the insider is out of the run.
void Driver::restarts_by_chance() {
  const PeerNode& liar = *world_.peers()[*cluster_.rules().insider];
  for (uint64_t left = options_.faults_max; left > 0 && !liar.gone(); --left) {
    run_for(chance_.duration(Duration{0}, options_.pause_max));
    if (chance_.once_in(4)) faults_.restart_master();
  }
}

void Driver::faults_by_chance() {
  if (options_.insider == RunOptions::Insider::kAlone) return restarts_by_chance();
  const bool mortal = cluster_.rules().mortal;
  if (mortal || chance_.once_in(3)) faults_.trigger();  // the first trigger may hit the founding
  run_for(chance_.duration(Duration{0}, std::chrono::seconds(1)));
  for (uint64_t left = chance_.between(1, options_.faults_max); left > 0; --left) {
    if (mortal) faults_.trigger();
    faults_.cause_one();
    const bool soon = chance_.once_in(2);
    run_for(chance_.duration(Duration{0},
                             soon ? Duration(std::chrono::milliseconds(20)) : options_.pause_max));
  }
}

void Driver::settle() {
  faults_.stop();
  // Peers that were given up learn of it, and a killed master is back.
  run_for(kPeerTimeout * 2);
  if (cluster_.rules().insider) cluster_.choose_immortals();  // the liar may have cost it its place
  for (size_t group = 0; group < cluster_.groups().size(); ++group) {
    const Cluster::Group& about = cluster_.groups()[group];
    auto peers = cluster_.of_group(group);  // without those that are about to be removed
    // A cycle of waits that the liar takes part in would not be found while a newcomer waits.
    const auto is_member = [](const PeerNode* peer) { return peer->is_member(); };
    const bool few =
        about.immortal != nullptr ||
        (cluster_.rules().insider && std::any_of(peers.begin(), peers.end(), is_member));
    const uint32_t enough = few ? about.min_peers : about.founders;
    std::erase_if(peers, [](PeerNode* peer) {
      return peer->unreachable || Cluster::workload(*peer).mistaken();
    });
    for (size_t count = peers.size(); count < enough; ++count) cluster_.add(group);
  }
  run_for(kPeerTimeout * 2);
  for (size_t group = 0; group < cluster_.groups().size(); ++group) cluster_.end_unjudged(group);
  const bool may_err = options_.kill_at_step < 0 && options_.insider == RunOptions::Insider::kNone;
  if (may_err && faults_.mistaken_newcomer()) run_for(kPeerTimeout * 3);
  if (may_err && faults_.be_late()) run_for(kPeerTimeout * 4);
  std::map<PeerNode*, uint64_t> before;
  for (PeerNode* peer : cluster_.all()) before[peer] = Cluster::workload(*peer).turns();
  const bool may_time_out = options_.insider == RunOptions::Insider::kAmongFaults;
  const Duration most = kSettleMax + (may_time_out ? Cluster::kCallTimeout : Duration{0});
  const Instant deadline = world_.event_loop().now() + most;
  const auto done = [&](const auto& entry) {
    return !entry.first->alive() || entry.first->gone() ||
           Cluster::workload(*entry.first).turns() >= entry.second + 2;
  };
  while (!std::all_of(before.begin(), before.end(), done) &&
         world_.event_loop().run_one(deadline)) {
  }
  for (const auto& entry : before) {
    if (done(entry)) continue;
    PeerNode& peer = *entry.first;
    checker_.violation("P4 " + peer.name() +
                       " makes no progress: " + Cluster::workload(peer).doing());
  }
  check_links();
  cluster_.choose_immortals();
  if (options_.insider != RunOptions::Insider::kNone)
    cluster_.check_insider(options_.insider == RunOptions::Insider::kAlone);
}

// Runs after a calm time. It checks that both ends of a link agree on its connection, that no peer
// dials a peer that is gone, and that an unreachable peer knows that it is out of the run.
void Driver::check_links() {
  const auto violation = [this](const std::string& text) { checker_.violation(text); };
  const Instant now = world_.event_loop().now();
  for (const auto& peer : world_.peers()) {
    if (peer->ended_at() || !Cluster::workload(*peer).joins()) continue;
    if (peer->unreachable && cluster_.groups()[peer->group().value].immortal != nullptr)
      violation("P4 " + peer->name() + " cannot be reached, and is not told");
    for (const uint16_t port : peer->links().dials()) {
      const PeerNode& other = *world_.by_port(port);
      if (other.ended_at() && *other.ended_at() + kDialledMax < now)
        violation("P4 " + peer->name() + " dials " + other.name() + ", which is gone");
    }
  }
  for (size_t group = 0; group < cluster_.groups().size(); ++group) {
    for (PeerNode* a : cluster_.of_group(group)) {
      for (PeerNode* b : cluster_.others(*a)) {
        if (!(a->id() < b->id()) || !a->is_member() || !b->is_member()) continue;
        if (a->links().serial(*b) != b->links().serial(*a))
          violation("P4 " + a->name() + " and " + b->name() + " keep different connections");
      }
    }
  }
}

RunReport Driver::run() {
  for (size_t group = 0; group < peers_.size(); ++group) {
    for (size_t i = 0; i < peers_[group]; ++i) cluster_.add(group);
  }
  if (options_.kill_at_step >= 0) {
    loss_at_step(static_cast<uint64_t>(options_.kill_at_step));
    settle();
  } else {
    for (uint64_t burst = 0; burst < options_.bursts && checker_.violations().empty(); ++burst) {
      faults_.go_on();
      faults_by_chance();
      settle();
    }
  }
  checker_.compare_survivors([this](const std::string& who) {
    const auto& peers = world_.peers();
    return std::any_of(peers.begin(), peers.end(), [&](const auto& peer) {
      return peer->name() == who && peer->alive() && !peer->gone();
    });
  });
  if (options_.kill_at_step < 0) end_well();
  return report();
}

// The process that hosts the master ends, often after its peer has left, while the others are in
// the middle of their work.
void Driver::end_well() {
  run_for(chance_.duration(Duration{0}, std::chrono::milliseconds(300)));
  auto peers = cluster_.all();
  PeerNode* const host = peers.empty() ? nullptr : peers[chance_.below(peers.size())];
  const bool may_leave =
      host != nullptr && !cluster_.rules().gentle && !cluster_.group_of(*host).quiet;
  if (may_leave && !chance_.once_in(3)) {
    host->leave();
    run_for(chance_.duration(Duration{0}, std::chrono::milliseconds(20)));
  }
  world_.end_master();
  const Instant deadline = world_.event_loop().now() + kEndMax;
  const auto told = [](const PeerNode* peer) {
    return peer->is_dismissed() || peer->gone() || !peer->alive();
  };
  while (!std::all_of(peers.begin(), peers.end(), told) && world_.event_loop().run_one(deadline)) {
  }
  run_for(kPeerTimeout);  // in which every peer makes its next call
  for (PeerNode* peer : peers) {
    if (!told(peer)) checker_.violation("P4 " + peer->name() + " is not told that the master ends");
    if (peer->alive() && Cluster::workload(*peer).is_in_call())
      checker_.violation("P4 " + peer->name() + " waits for a master that has ended");
  }
}

RunReport Driver::report() {
  RunReport report;
  report.violations = checker_.violations();
  report.steps = world_.event_loop().steps();
  report.faults = faults_.caused();
  if (losses_ > 0) report.faults["killed"] += losses_;
  report.outcomes = checker_.outcomes();
  report.mistakes = cluster_.mistakes_checked();
  report.late = cluster_.late_checked();
  for (const auto& peer : world_.peers()) report.turns += Cluster::workload(*peer).turns();
  report.virtual_time = world_.event_loop().now().since_start;
  return report;
}

// While a run is under way, for an assertion that fails.
const RunOptions* running = nullptr;
const EventLoop* running_clock = nullptr;

template <typename AnyDriver>
RunReport run_watched(AnyDriver&& driver, const RunOptions& options) {
  running = &options;
  running_clock = &driver.clock();
  on_assertion_failed = [] {
    std::fprintf(stderr, "%s: an assertion failed at %.6f s of virtual time, step %llu\n",
                 repeat_text(*running).c_str(), to_seconds(running_clock->now().since_start),
                 static_cast<unsigned long long>(running_clock->steps()));
  };
  const RunReport report = driver.run();
  on_assertion_failed = nullptr;
  return report;
}

}  // namespace

RunReport run_seed(const RunOptions& options) {
  return options.reconfigures ? run_watched(Reconfigures(options), options)
                              : run_watched(Driver(options), options);
}

std::string repeat_text(const RunOptions& options) {
  std::string out = "--seed " + std::to_string(options.seed);
  if (options.kill_at_step >= 0) return out + " --kill-at " + std::to_string(options.kill_at_step);
  char rest[96];
  std::snprintf(rest, sizeof rest, " --bursts %llu --faults %llu --pause %g",
                static_cast<unsigned long long>(options.bursts),
                static_cast<unsigned long long>(options.faults_max), to_seconds(options.pause_max));
  const char* const insider = options.insider == RunOptions::Insider::kNone ? ""
                              : options.insider == RunOptions::Insider::kAlone
                                  ? " --insider alone"
                                  : " --insider faults";
  return out + rest + (options.devices ? " --devices on" : "") +
         (options.reconfigures ? " --reconfigures on" : "") + insider;
}

}  // namespace pccl::sim
