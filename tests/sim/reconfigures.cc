#include "tests/sim/reconfigures.h"

#include <algorithm>
#include <cstdio>

#include "tests/sim/cluster.h"
#include "tests/sim/peer_node.h"

namespace pccl::sim {
namespace {

constexpr size_t kProcessesMax = 6;
constexpr Duration kTimeout = std::chrono::seconds(8), kTimeoutShort = std::chrono::seconds(1);
// The processes of a reconfigure call it within this time, and some of them much later.
constexpr Duration kCallsMax = std::chrono::milliseconds(50), kLateMax = std::chrono::seconds(3);
// A call ends so soon after a process is lost, or after the last call.
constexpr Duration kLossMax = std::chrono::seconds(1);
// Time limit for two turns of each member, if nothing happens.
constexpr Duration kProgressMax = std::chrono::seconds(25);

WorldOptions world_options(const RunOptions& options) {
  WorldOptions world;
  Random random(options.seed ^ 0x4ec0);
  if (random.once_in(3)) world.control_delay_max = std::chrono::milliseconds(20);
  if (random.once_in(3)) world.wire.piece_bytes_max = 1000;
  if (!random.once_in(3)) world.lanes_max = 3;
  constexpr uint32_t kExchanged[] = {0, 400, protocol::kOneShotBytesMax};
  world.one_shot_bytes = kExchanged[random.below(std::size(kExchanged))];
  if (random.once_in(4)) world.wire.delay_max = std::chrono::milliseconds(10);
  if (random.once_in(3)) world.rtt = 50'000;
  world.plant = options.plant;
  world.both_dial = random.once_in(3);
  world.secured = random.once_in(2) && options.plant != Bug::kAnyRun;
  world.elsewhere = random.once_in(2);
  world.devices = random.once_in(2) || options.devices;
  world.fixed_world = true;
  return world;
}

protocol::RunSettings settings(uint64_t seed) {
  Cluster::Rules rules;
  rules.retries = Random(seed ^ 0x5e7).once_in(3);
  return rules.settings();
}

}  // namespace

Reconfigures::Reconfigures(const RunOptions& options)
    : options_(options),
      chance_(options.seed ^ 0x4ecf),
      processes_(clock_, options.seed, world_options(options), settings(options.seed)) {
  processes_.on_violation = [this](const std::string& text) { violation(text); };
  processes_.on_over = [this](const Attempt& attempt) { judge(attempt); };
  if (!options.transcript) return;
  processes_.on_note = [this](const std::string& who, const std::string& what) {
    char head[32];
    std::snprintf(head, sizeof head, "[%10.6f] ", to_seconds(clock_.now().since_start));
    options_.transcript(head + who + " > " + what);
  };
}

const std::vector<Reconfigures::Kind>& Reconfigures::kinds() {
  static const std::vector<Kind> kKinds = {
      {"reconfigure", 10, &Reconfigures::reconfigure},
      {"reconfigure of members", 10, &Reconfigures::regroup},
      {"reconfigure with a used uuid", 2, &Reconfigures::used_uuid},
      {"reconfigure with another list", 2, &Reconfigures::other_list},
      {"reconfigure that one does not call", 2, &Reconfigures::missing_call},
      {"reconfigure aborted", 3, &Reconfigures::abort_call},
      {"newcomer", 4, &Reconfigures::newcomer},
      {"killed", 3, &Reconfigures::kill},
      {"restarted", 3, &Reconfigures::restart},
      {"stopped", 3, &Reconfigures::stop},
      {"two peers cut off from each other", 3, &Reconfigures::cut_off},
      {"link reset", 3, &Reconfigures::break_link},
      {"link half open", 2, &Reconfigures::half_break_link},
      {"master connection reset", 3, &Reconfigures::break_master_connection}};
  return kKinds;
}

void Reconfigures::cause_one() {
  uint32_t sum = 0;
  for (const Kind& kind : kinds()) sum += kind.weight;
  for (int tries = 0; tries < 20; ++tries) {
    uint64_t ticket = chance_.below(sum);
    const Kind* chosen = kinds().data();
    while (ticket >= chosen->weight) ticket -= (chosen++)->weight;
    if (!(this->*chosen->cause)()) continue;
    ++caused_[chosen->name];
    return;
  }
}

// ---- Choice ----

Process* Reconfigures::any(const std::function<bool(const Process&)>& fits) {
  std::vector<Process*> found = processes_.alive();
  if (fits) std::erase_if(found, [&fits](const Process* one) { return !fits(*one); });
  return found.empty() ? nullptr : found[chance_.below(found.size())];
}

// In a random order, which is that of the ranks.
std::vector<Process*> Reconfigures::some(size_t least) {
  std::vector<Process*> found = processes_.alive();
  for (size_t i = found.size(); i > 1; --i) std::swap(found[i - 1], found[chance_.below(i)]);
  if (found.size() <= least) return found;
  found.resize(chance_.once_in(2) ? found.size() : chance_.between(least, found.size()));
  return found;
}

// ---- Reconfigures ----

std::shared_ptr<Attempt> Reconfigures::attempt(std::vector<Process*> listed) {
  auto made = std::make_shared<Attempt>();
  made->uuid = ++uuid_;
  for (const Process* one : listed) made->handles.push_back(Processes::handle(*one));
  made->listed = std::move(listed);
  return made;
}

// `silent`: does not call. `others_list`: of the last process, if it is not empty.
void Reconfigures::call_all(const std::shared_ptr<Attempt>& attempt, const Process* silent,
                            const Handles& others_list) {
  processes_.open(attempt);
  const bool late = chance_.once_in(4), hasty = chance_.once_in(6);
  const Duration timeout = hasty ? kTimeoutShort : kTimeout;
  attempt->may_fail |= hasty || silent != nullptr || !others_list.empty();
  for (Process* one : attempt->listed) {
    const bool wrong = one == attempt->listed.back() && !others_list.empty();
    const Handles handles = wrong ? others_list : attempt->handles;
    const Duration soon = chance_.duration(Duration{0}, late ? kLateMax : kCallsMax);
    clock_.after(soon, [this, one, attempt, handles, timeout, skips = one == silent] {
      if (skips) return processes_.skip_call(*one, attempt);
      processes_.call(*one, attempt, handles, timeout);
    });
  }
}

bool Reconfigures::reconfigure() {
  const auto listed = some(1);
  if (listed.empty()) return false;
  call_all(attempt(listed));
  return true;
}

// Of members of one run, whose host stays the first.
bool Reconfigures::regroup() {
  Process* const host = any([](const Process& process) {
    return process.peer != nullptr && !process.met.empty() && process.met[0] == process.group;
  });
  if (host == nullptr) return false;
  std::vector<Process*> listed = some(1);
  std::erase_if(listed, [host](const Process* one) {
    const auto& met = host->met;
    return one == host || std::find(met.begin(), met.end(), one->group) == met.end();
  });
  listed.insert(listed.begin(), host);
  call_all(attempt(listed));
  return true;
}

bool Reconfigures::used_uuid() {
  const auto listed = some(1);
  // With the present handles of a call that is under way, it would be the same reconfigure.
  if (listed.empty() || listed[0]->call != nullptr) return false;
  const auto made = attempt(listed);
  const auto& used = made->listed[0]->used;
  if (used.empty() || used.rbegin()->first != made->handles[0].group) return false;
  made->uuid = used.rbegin()->second;
  made->may_fail = true;
  call_all(made);
  return true;
}

bool Reconfigures::other_list() {
  const auto listed = some(2);
  if (listed.size() < 2) return false;
  const auto made = attempt(listed);
  Handles others = made->handles;
  if (others.size() == 2 || chance_.once_in(2)) {
    std::swap(others[chance_.below(others.size() - 1)], others.back());
  } else {
    others.erase(others.begin() + static_cast<ptrdiff_t>(chance_.below(others.size() - 1)));
  }
  call_all(made, nullptr, others);
  return true;
}

bool Reconfigures::missing_call() {
  const auto listed = some(2);
  if (listed.size() < 2) return false;
  call_all(attempt(listed), listed[chance_.below(listed.size())]);
  return true;
}

bool Reconfigures::abort_call() {
  Process* const one = any([](const Process& process) {
    return process.call != nullptr && !process.call->interrupted && !process.stopped;
  });
  if (one == nullptr) return false;
  processes_.touch(*one);
  processes_.interrupt(*one);
  return true;
}

void Reconfigures::judge(const Attempt& attempt) {
  ++judged_;
  const std::string about = "reconfigure " + std::to_string(attempt.uuid);
  const auto succeeded = [&](const Process* one) { return attempt.succeeded(*one); };
  const bool all = std::all_of(attempt.listed.begin(), attempt.listed.end(), succeeded);
  const bool some = std::any_of(attempt.listed.begin(), attempt.listed.end(), succeeded);
  if (!all && attempt.touched.empty() && !attempt.may_fail)
    violation("P4 " + about + " fails, though nothing happens to its processes");
  if (attempt.only_losses && !attempt.may_fail && clock_.now() > attempt.last_event + kLossMax)
    violation("P4 " + about + " ends late, though nobody needs to wait");
  if (some && (attempt.run == nullptr || !attempt.run->has_begun()))
    violation("P1 " + about + " succeeds, and its run has not begun");
  if (!some || all || attempt.touched.contains(attempt.listed[0])) return;
  for (const Process* one : attempt.listed) {
    if (succeeded(one) || attempt.touched.contains(one)) continue;
    violation("P1 " + about + " succeeds on some, and fails on " + one->name +
              ", to which nothing has happened");
  }
}

// ---- Faults of processes and paths ----

bool Reconfigures::newcomer() {
  if (processes_.alive().size() >= kProcessesMax) return false;
  processes_.add();
  return true;
}

bool Reconfigures::kill() {
  if (processes_.alive().size() < 2) return false;
  processes_.kill(*any());
  return true;
}

// Its handles of before are stale.
bool Reconfigures::restart() {
  Process* const one = any();
  if (one == nullptr) return false;
  processes_.kill(*one);
  const Duration soon =
      chance_.duration(Duration{0}, chance_.once_in(2) ? kCallsMax : kPeerTimeout);
  lasting_.add(soon, [this, one] { processes_.add(one); });
  return true;
}

bool Reconfigures::stop() {
  Process* const one = any([](const Process& process) { return !process.stopped; });
  if (one == nullptr) return false;
  processes_.stop(*one);
  const bool brief = chance_.once_in(2);
  lasting_.add(chance_.duration(Duration{0}, brief ? kPeerTimeout / 4 : 3 * kPeerTimeout),
               [this, one] {
                 if (!one->alive || !one->stopped) return;
                 processes_.touch(*one);
                 processes_.go_on(*one);
               });
  return true;
}

bool Reconfigures::cut_off() {
  Process* const one = any();
  Process* const other = any(
      [&](const Process& process) { return &process != one && !processes_.is_cut(*one, process); });
  if (other == nullptr) return false;
  const auto heal = processes_.cut(*one, *other);
  lasting_.add(chance_.duration(Duration{0}, 2 * kPeerTimeout), heal);
  return true;
}

bool Reconfigures::link_trouble(bool half) {
  Process* const one = any([](const Process& process) {
    const Process::Call* call = process.call.get();
    return (call != nullptr && call->peer != nullptr) || process.peer != nullptr;
  });
  if (one == nullptr) return false;
  const bool joins = one->call != nullptr && one->call->peer != nullptr;
  HostedRun& run = joins ? *one->call->run : *one->run;
  PeerNode& peer = joins ? *one->call->peer : *one->peer;
  const auto& [other, node] = run.peers()[chance_.below(run.peers().size())];
  if (node == &peer || !peer.alive() || !node->alive()) return false;
  const bool done = half ? run.world().half_break_link(peer, *node, chance_.once_in(2))
                         : run.world().break_link(peer, *node);
  if (!done) return false;
  processes_.touch(*one);
  processes_.touch(*other);
  return true;
}
bool Reconfigures::break_link() { return link_trouble(false); }
bool Reconfigures::half_break_link() { return link_trouble(true); }

bool Reconfigures::break_master_connection() {
  Process* const one = any([](const Process& process) { return !process.stopped; });
  if (one == nullptr) return false;
  const bool joins = one->call != nullptr && one->call->peer != nullptr;
  HostedRun* const run = joins ? one->call->run : one->run;
  PeerNode* const peer = joins ? one->call->peer : one->peer;
  if (peer == nullptr || !peer->alive() || !run->world().break_master_connection(*peer))
    return false;
  processes_.touch(*one);
  return true;
}

// ---- The run ----

void Reconfigures::run_for(Duration duration) {
  const Instant until = clock_.now() + duration;
  while (clock_.run_one(until)) {
  }
}

// Every member of a group, also of one that was left or whose reconfigure has failed.
void Reconfigures::check_progress(const char* when) {
  std::vector<std::pair<Process*, PeerNode*>> members;
  for (Process* one : processes_.alive())
    if (one->peer != nullptr && one->peer->alive() && !one->peer->gone())
      members.emplace_back(one, one->peer);
  std::map<PeerNode*, uint64_t> before;
  for (const auto& [process, peer] : members) before[peer] = Cluster::workload(*peer).turns();
  const auto done = [&](const auto& one) {
    return one.second->gone() || Cluster::workload(*one.second).turns() >= before[one.second] + 2;
  };
  const Instant deadline = clock_.now() + kProgressMax;
  while (!std::all_of(members.begin(), members.end(), done) && clock_.run_one(deadline)) {
  }
  for (const auto& one : members) {
    if (!done(one))
      violation("P4 " + one.first->name + " makes no progress " + when + ": " +
                Cluster::workload(*one.second).doing());
  }
}

void Reconfigures::settle() {
  lasting_.end_all();
  // All calls end, and everybody learns which peers are lost.
  run_for(kTimeout + kLateMax + 2 * kPeerTimeout);
  check_progress("after the faults");
  if (processes_.alive().empty()) processes_.add();
  auto listed = some(processes_.alive().size());
  const auto made = attempt(listed);
  processes_.open(made);
  for (Process* one : made->listed) processes_.call(*one, made, made->handles, kTimeout);
  const Instant deadline = clock_.now() + 2 * kTimeout;
  while (!made->over() && clock_.run_one(deadline)) {
  }
  if (!made->over()) violation("P4 the last reconfigure does not end");
  for (const Process* one : made->listed) {
    if (!made->succeeded(*one) || one->peer == nullptr || one->peer->gone())
      violation("P4 the last reconfigure leaves " + one->name + " without a group");
  }
  check_progress("after the last reconfigure");
}

RunReport Reconfigures::run() {
  const uint64_t first = chance_.between(1, 5);
  for (uint64_t i = 0; i < first; ++i) processes_.add();
  for (uint64_t burst = 0; burst < options_.bursts && checker_.violations().empty(); ++burst) {
    reconfigure();
    for (uint64_t left = chance_.between(1, options_.faults_max); left > 0; --left) {
      const bool soon = chance_.once_in(2);
      run_for(chance_.duration(
          Duration{0}, soon ? Duration(std::chrono::milliseconds(20)) : options_.pause_max));
      cause_one();
    }
    settle();
  }
  return report();
}

RunReport Reconfigures::report() {
  RunReport report;
  for (HostedRun& run : processes_.runs()) {
    run.compare_survivors();
    for (const auto& text : run.checker().violations()) violation(run.name() + ": " + text);
    report.outcomes += run.checker().outcomes();
    for (const auto& [process, peer] : run.peers())
      report.turns += Cluster::workload(*peer).turns();
  }
  report.violations = checker_.violations();
  report.steps = clock_.steps();
  report.faults = caused_;
  report.faults["calls that kept their run"] = processes_.regroups();
  report.reconfigures = judged_;
  report.virtual_time = clock_.now().since_start;
  return report;
}

}  // namespace pccl::sim
