#include "master/shell/runs.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/log.h"
#include "csrc/base/random.h"
#include "csrc/net/address.h"
#include "csrc/protocol/limits.h"
#include "master/diagnosis/diagnosis.h"
#include "master/members/admission.h"
#include "master/operator/metrics.h"
#include "master/operator/snapshot.h"
#include "master/operator/summary.h"
#include "master/run_view.h"
#include "master/text_format.h"
#include "master/topology/planner.h"

namespace pccl::master {
namespace {

// Interval between two checks for lines that are too old.
constexpr Duration kClockLook = std::chrono::minutes(10);

protocol::Key random_key() {
  protocol::Key key{};
  fill_random(std::as_writable_bytes(std::span(key.words)));
  return key;
}

UnixSeconds clock_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(unix_now()).count();
}

}  // namespace

struct Runs::Run {
  Run(net::Loop& loop, const Options& options, const RunRecord& remembered,
      std::function<void()> on_time)
      : name(options.run),
        id(options.run_id),
        decisions(options.decisions),
        core(options, remembered),
        timer(loop, std::move(on_time)) {}
  const std::string name;
  const uint64_t id;
  const protocol::Key decisions;
  MasterCore core;
  net::Timer timer;
  bool founded = false;  // the registry knows it
  Scraped scraped;
  // without a journal: tokens of records, which count as durable at once
  std::deque<uint64_t> persisted;
  std::optional<std::deque<Event>> waiting;  // events, until the RunOpened entry is durable
};

// The incarnation grows with every start of the master, so that numbers of peers and epochs are
// never reused. It is the clock's seconds, or one more than in the journal if the clock was set
// back.
Runs::Runs(net::Loop& loop, bool loopback_only, bool secured, int keep_days,
           const protocol::VersionRange& versions, Callbacks callbacks)
    : loop_(loop),
      loopback_only_(loopback_only),
      secured_(secured),
      versions_(versions),
      callbacks_(std::move(callbacks)),
      incarnation_(static_cast<uint32_t>(clock_now())),
      registry_(keep_days * kDay) {}

// Until they are destroyed, the threads of the journal and of the planner may call later().
Runs::~Runs() {
  journal_.reset();
  planner_.reset();
}

void Runs::later(std::function<void()> what) {
  loop_.post([here = std::weak_ptr(here_), what = std::move(what)] {
    if (!here.expired()) what();
  });
}

uint64_t Runs::id(const Run& run) { return run.id; }
const std::string& Runs::name(const Run& run) { return run.name; }
std::optional<uint32_t> Runs::rank_of(const Run& run, ConnectionId id) {
  return run.core.view().rank_of(id);
}

// ---- Beginning ----

Status Runs::open(const Remembering& remembering) {
  PCCL_ASSERT(journal_ == nullptr && runs_.empty());
  Memory memory;
  if (!remembering.path.empty()) {
    auto opened = JournalFile::open(remembering.path, remembering.fresh, incarnation_,
                                    [this, then = remembering.on_failure](const Status& why) {
                                      journal_failed_ = true;
                                      then(why);
                                    });
    if (!opened.ok()) return opened.status();
    journal_ = std::move(opened.value());
    memory = journal_->take_memory();
    incarnation_ = memory.incarnation;
  }
  if (remembering.resume_from) {
    auto entries = resume_from(memory, *remembering.resume_from, random_number());
    if (!entries.ok()) return entries.status();
    for (const Entry& entry : entries.value()) {
      memory.apply(entry);
      journalled(entry);
    }
  }
  remembered_ = summary(memory, versions_);
  later([this, memory = std::move(memory)] { restore(memory); });
  return {};
}

void Runs::restore(const Memory& memory) {
  loop_.assert_on_loop();
  const Instant back_until = monotonic_now() + protocol::kMasterTimeoutDefault;
  const UnixSeconds clock = clock_now();
  for (const auto& [name, record] : memory.runs) {
    std::optional<UnixSeconds> ended = record.ended;
    if (!ended && !versions_.contains(record.version)) {
      log({LogLevel::kWarning,
           LogEvent::kRunEnded,
           "run \"" + name + "\" has ended: it spoke version " + std::to_string(record.version) +
               " of the pccl protocol, and this master speaks " + protocol::text(versions_) +
               ", so that none of its peers can come back. The next run of this name starts from "
               "its shared state",
           {name}});
      ended = clock;
      journalled(RunFinished{name, clock});
    }
    if (ended) {
      FinishedRun line{record.origin, *ended, {}};
      for (const auto& [group, state] : record.shared_states) line.states.push_back(state);
      registry_.restore(name, std::move(line));
      continue;
    }
    Run& run = make(name, record);
    registry_.restore(name, record.origin, run.core.view().is_founded(), back_until, clock);
    step(run, TimePassed{});
  }
  // Runs that are still founding are not over: their peers may be on their way back.
  std::erase_if(idle_, [this](const std::string& name) {
    return registry_.find(name)->phase == Registry::Phase::kFounding;
  });
  timer_ = std::make_unique<net::Timer>(loop_, [this] { look_at_clock(); });
  look_at_clock();
}

Runs::Run& Runs::make(const std::string& name, const RunRecord& remembered) {
  Options options{name, remembered.run_id, incarnation_, loopback_only_};
  options.version = remembered.version;
  options.decisions = remembered.decisions;
  options.shares = shares_;
  options.fixed_world = fixed_worlds_;
  if (secured_) options.seed = random_key();
  runs_[name] = std::make_unique<Run>(loop_, options, remembered, [this, name] {
    // later in this turn: input that has arrived goes first
    later([this, name] { on_time(name); });
  });
  return *runs_[name];
}

std::deque<Event> of_open_connections(std::deque<Event> events) {
  std::set<ConnectionId> closed;
  for (const Event& event : events) {
    if (const auto* end = std::get_if<Closed>(&event)) closed.insert(end->connection);
  }
  std::erase_if(events, [&closed](const Event& event) {
    return std::visit(
        [&closed](const auto& what) {
          if constexpr (requires { what.connection; }) return closed.contains(what.connection);
          return false;
        },
        event);
  });
  return events;
}

// Begins a life of a run. Its events wait until that is durable.
Runs::Run& Runs::begin(const std::string& name, const Registry::Admission& admission,
                       uint16_t version) {
  RunRecord remembered{random_number(), {}, {}, admission.origin, {}, version, random_key()};
  for (const auto& state : admission.states) remembered.shared_states[state.group] = state;
  Run& run = make(name, remembered);
  if (!journal_) return run;
  run.waiting.emplace();
  write(run, RunOpened{name, run.id, admission.origin, version, run.decisions},
        [this](Run& durable) {
          const std::deque<Event> events = of_open_connections(std::move(*durable.waiting));
          durable.waiting.reset();
          for (const Event& event : events) step(durable, event);
          step(durable, TimePassed{});  // the run may be idle now
        });
  return run;
}

Runs::Found Runs::admit(const protocol::Hello& hello, const std::string& host) {
  loop_.assert_on_loop();
  const std::string origin = net::network_of(host);
  Registry::Admission admission = registry_.admit(hello.run, origin, monotonic_now(), clock_now());
  carry_out(admission.decisions);
  if (admission.rejected) return {nullptr, admission.rejected};
  if (!admission.opened) return {runs_.at(hello.run).get(), {}};
  const auto version = protocol::common(hello.versions, versions_);
  PCCL_ASSERT(version.has_value());
  return {&begin(hello.run, admission, *version), {}};
}

Runs::Found Runs::find(const protocol::Resume& resume) {
  loop_.assert_on_loop();
  const auto known = runs_.find(resume.run);
  if (known != runs_.end()) return {known->second.get(), {}};
  const std::string name = "run \"" + resume.run + "\"";
  const bool finished = registry_.find(resume.run).has_value();
  if (finished) {
    return {nullptr, protocol::Reject{Code::kKicked, name + " has ended: all its members were "
                                                            "given up or have left"}};
  }
  return {nullptr, protocol::Reject{Code::kMasterLost, "this master does not know " + name +
                                                           ": it was started anew; join again"}};
}

// ---- Life ----

void Runs::attach(Run& run, const Accepted& accepted, const protocol::Message& first) {
  loop_.assert_on_loop();
  registry_.connected(run.name);
  const auto* hello = std::get_if<protocol::Hello>(&first);
  if (const auto* resume = std::get_if<protocol::Resume>(&first))
    hello = resume->hello ? &*resume->hello : nullptr;
  if (hello != nullptr) {
    const Duration wait = std::chrono::milliseconds(hello->join_timeout_ms);
    registry_.waits(run.name, monotonic_now() + wait);
  }
  step(run, accepted);
  step(run, Received{accepted.connection, first});
}

void Runs::detach(Run& run) {
  loop_.assert_on_loop();
  registry_.disconnected(run.name, monotonic_now());
}

void Runs::journalled(Entry entry) {
  if (journal_) journal_->write(std::move(entry), [] {});
}

// A function for any thread. It calls `then` on this loop, if the run still exists.
std::function<void()> Runs::on_loop(const Run& run, std::function<void(Run&)> then) {
  return [this, name = run.name, id = run.id, then = std::move(then)] {
    later([this, name, id, then] {
      const auto found = runs_.find(name);
      if (found == runs_.end() || found->second->id != id) return;
      then(*found->second);
      callbacks_.on_stepped();
    });
  };
}

// Calls `then` on this loop once the entry is durable, if the run still exists.
void Runs::write(const Run& run, Entry entry, std::function<void(Run&)> then) {
  journal_->write(std::move(entry), on_loop(run, std::move(then)));
}

size_t Runs::revoke(const std::set<TokenId>& tokens) {
  loop_.assert_on_loop();
  size_t peers = 0;
  for (const auto& [name, run] : runs_) {
    peers += run->core.view().count_holders(tokens);
    step(*run, Revoked{tokens});
  }
  return peers;
}

void Runs::on_time(const std::string& name) {
  const auto run = runs_.find(name);
  if (run != runs_.end()) step(*run->second, TimePassed{});
  callbacks_.on_stepped();
}

void Runs::step(Run& run, const Event& event) {
  loop_.assert_on_loop();
  if (run.waiting) return run.waiting->push_back(event);
  step_once(run, event);
  while (!run.persisted.empty()) {
    const uint64_t token = run.persisted.front();
    run.persisted.pop_front();
    step_once(run, Persisted{token});
  }
  const auto deadline = run.core.deadline();
  deadline ? run.timer.arm(*deadline) : run.timer.disarm();
  if (!run.founded && run.core.view().is_founded()) {
    run.founded = true;
    registry_.founded(run.name);
    if (callbacks_.on_founded) callbacks_.on_founded(run.name);
  }
  if (run.core.view().is_idle()) idle_.push_back(run.name);
}

void Runs::step_once(Run& run, const Event& event) {
  Effects effects;
  run.core.step(event, monotonic_now(), effects);
  for (const Effect& effect : effects)
    std::visit([this, &run](const auto& what) { apply(run, what); }, effect);
}

void Runs::apply(Run&, const Send& effect) { callbacks_.send(effect.connection, effect.message); }

void Runs::apply(Run&, const Close& effect) { callbacks_.close(effect.connection); }

void Runs::apply(Run& run, const Persist& effect) {
  if (!journal_) return run.persisted.push_back(effect.token);
  write(run, RunRecorded{run.name, effect.record},
        [this, token = effect.token](Run& durable) { step(durable, Persisted{token}); });
}

// The search for the ring of a large group takes some seconds. One separate thread does the
// searches of all runs: a group waits for one search at a time, and kPlanningMax leaves room for
// the searches of other runs.
void Runs::apply(Run& run, const PlanRing& effect) {
  if (!planner_) planner_ = std::make_unique<net::Loop>("pccl-planner");
  auto found = std::make_shared<RingPlanned>(RingPlanned{effect.group, effect.token, {}});
  planner_->post([found, question = effect.question,
                  then = on_loop(run, [this, found](Run& there) { step(there, *found); })]() {
    found->plan = topology::fastest_plan(*question);
    then();
  });
}

void Runs::apply(Run& run, const Log& effect) {
  LogRecord record{effect.level, effect.about.event, effect.text, {run.name}};
  record.lead = text(record.about);  // the text has the group, if it is not 0
  if (effect.about.group) record.about.group = effect.about.group->value;
  record.about.peer = effect.about.peer;
  log(std::move(record));
}

void Runs::regroup(const std::string& name, const RegroupAgreed& agreed) {
  step(*runs_.at(name), agreed);
}

// ---- Ending ----

void Runs::carry_out(const std::vector<Registry::Decision>& decisions) {
  for (const Registry::Decision& decision : decisions) {
    if (const auto* ended = std::get_if<Registry::End>(&decision)) {
      end(ended->run, ended->why);
    } else {
      const auto& forgotten = std::get<Registry::Forget>(decision);
      log_forgotten(forgotten);
      journalled(RunForgotten{forgotten.run});
    }
  }
}

void Runs::end(const std::string& name, const std::string& why) {
  const auto found = runs_.find(name);
  if (found == runs_.end()) return;  // two decisions for one run
  Run& run = *found->second;
  if (run.waiting) {
    const std::string text = "run \"" + name + "\" is ended: " + why;
    log({LogLevel::kInfo, LogEvent::kRunEnded, text, {name}});
    // The core has not received any event yet.
    for (const Event& event : std::exchange(*run.waiting, {})) {
      const auto* accepted = std::get_if<Accepted>(&event);
      if (accepted == nullptr) continue;
      callbacks_.send(accepted->connection, protocol::Reject{Code::kKicked, text});
      callbacks_.close(accepted->connection);
    }
  } else {
    step(run, Ended{why});
  }
  if (run.core.view().is_idle()) finish(name);  // otherwise finish_turn() will finish it
}

void Runs::log_forgotten(const Registry::Forget& forgotten) const {
  const bool agreed = !forgotten.what.states.empty();
  log({agreed ? LogLevel::kWarning : LogLevel::kInfo,
       LogEvent::kRunForgotten,
       "run \"" + forgotten.run + "\" is forgotten: " + forgotten.why,
       {forgotten.run}});
}

// REQUIRES: its core is idle, or has not received any event.
void Runs::finish(const std::string& name) {
  const auto run = runs_.find(name);
  PCCL_ASSERT(run != runs_.end() && (run->second->waiting || run->second->core.view().is_idle()));
  // Nobody begins a run of a hosted master again, since each has a name of its own.
  auto states = run->second->core.view().shared_states();
  if (fixed_worlds_) states.clear();
  const auto line = registry_.over(name, std::move(states), clock_now());
  runs_.erase(run);
  line ? journalled(RunFinished{name, line->ended}) : journalled(RunForgotten{name});
}

void Runs::finish_turn() {
  loop_.assert_on_loop();
  for (const Registry::End& ended : registry_.expire(monotonic_now())) end(ended.run, ended.why);
  std::vector<std::string> idle;
  idle.swap(idle_);
  for (const std::string& name : idle) {
    const auto run = runs_.find(name);
    if (run == runs_.end() || run->second->waiting || !run->second->core.view().is_idle()) continue;
    finish(name);
  }
  const auto next = registry_.deadline();
  const Instant look = monotonic_now() + kClockLook;
  if (timer_) timer_->arm(next ? std::min(*next, look) : look);
}

void Runs::look_at_clock() {
  carry_out(registry_.forget_old(clock_now()));
  callbacks_.on_stepped();
}

std::map<std::string, Registry::Listed> Runs::list() const {
  loop_.assert_on_loop();
  auto all = registry_.list();
  for (const auto& [name, run] : runs_) all.at(name).states = run->core.view().shared_states();
  return all;
}

std::variant<Registry::Forget, std::string> Runs::forget(const std::string& run) {
  loop_.assert_on_loop();
  auto forgotten = registry_.forget(run);
  if (const auto* gone = std::get_if<Registry::Forget>(&forgotten)) carry_out({*gone});
  return forgotten;
}

// A step first, so that the snapshot is of now. A run that is being opened has taken none.
std::optional<nlohmann::json> Runs::snapshot_of(const std::string& name, Detail detail) {
  loop_.assert_on_loop();
  const auto found = runs_.find(name);
  if (found == runs_.end()) return std::nullopt;
  Run& run = *found->second;
  if (!run.waiting) step(run, Watched{});
  const WallClock clock{monotonic_now(), unix_now().count()};
  nlohmann::json shown = snapshot(run.core.view(), clock, registry_.find(name)->since, detail);
  callbacks_.on_stepped();  // it may end the run
  return shown;
}

std::string Runs::metrics() {
  loop_.assert_on_loop();
  std::vector<MeasuredRun> all;
  for (const auto& [name, run] : runs_) {
    if (!run->waiting) step(*run, Watched{});
    all.push_back({run->core.view(), run->scraped});
  }
  const auto journal = journal_ ? std::optional(journal_->counts()) : std::nullopt;
  std::string text = metrics_text(all, journal, monotonic_now());
  callbacks_.on_stepped();  // it may end a run
  return text;
}

void Runs::notify(const Notifier::Options& to) {
  loop_.assert_on_loop();
  PCCL_ASSERT(notifier_ == nullptr);
  notifier_ = std::make_unique<Notifier>(loop_, to, [this] { return findings(); });
}

// A step first, as for a snapshot. It may end a run, but only on_stepped() removes one.
FindingsByRun Runs::findings() {
  loop_.assert_on_loop();
  FindingsByRun all;
  for (const auto& [name, run] : runs_) {
    if (run->waiting) continue;
    step(*run, TimePassed{});
    if (!run->core.view().is_idle()) all[name] = diagnose(run->core.view());
  }
  callbacks_.on_stepped();
  return all;
}

void Runs::turned_away(const std::string& host, const protocol::Reject& reject) {
  loop_.assert_on_loop();
  if (runs_.size() == 1) step(*runs_.begin()->second, TurnedAway{host, reject});
}

void Runs::drain(const std::string& name) {
  loop_.assert_on_loop();
  const auto run = runs_.find(name);
  if (run != runs_.end()) step(*run->second, Draining{});
}

bool Runs::settled(const std::string& name) const {
  loop_.assert_on_loop();
  const auto run = runs_.find(name);
  return run == runs_.end() || run->second->core.view().is_settled();
}

void Runs::host_exits(const std::string& name, Duration patience) {
  loop_.assert_on_loop();
  const auto run = runs_.find(name);
  if (run != runs_.end()) step(*run->second, HostExits{patience});
}

bool Runs::may_exit(const std::string& name) const {
  loop_.assert_on_loop();
  const auto run = runs_.find(name);
  return run == runs_.end() || run->second->core.view().may_exit();
}

std::string Runs::awaited_peers(const std::string& name) const {
  const auto run = runs_.find(name);
  std::string out;
  if (run == runs_.end()) return out;
  for (const std::string& peer : run->second->core.view().described_peers())
    out += (out.empty() ? "" : ", ") + peer;
  return out;
}

}  // namespace pccl::master
