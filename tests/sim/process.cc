#include "tests/sim/process.h"

#include <algorithm>

#include "csrc/peer/shell/waiter.h"
#include "csrc/protocol/keepalive_timer.h"
#include "tests/sim/cluster.h"

namespace pccl::sim {
namespace {

constexpr Duration kMessageMin = std::chrono::microseconds(10);
// The application looks for the end of its call so often.
constexpr Duration kPollMax = peer::Waiter::kInterruptPeriodShort;
// A call whose host gives no reason ends so long after its timeout, and a little later here.
constexpr Duration kReasonGrace = std::chrono::seconds(1);
constexpr Duration kSlack = std::chrono::seconds(1);
// A process whose uuid was used refuses the host within this time, or not at all.
constexpr Duration kRefusalMax = std::chrono::seconds(2);
constexpr Duration kWaitMax = std::chrono::hours(1);
constexpr uint16_t kMasterPort = 4000;

std::string group_name(size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(protocol::ReconfigureHandle::kGroupDigits - digits.size(), '0') + digits;
}

}  // namespace

const Process* Attempt::listed_at(size_t machine) const {
  const auto at = std::find_if(listed.begin(), listed.end(),
                               [machine](const Process* one) { return one->machine == machine; });
  return at == listed.end() ? nullptr : *at;
}

bool Attempt::succeeded(const Process& process) const {
  const auto at = outcomes.find(&process);
  return at != outcomes.end() && at->second == Outcome::kSucceeded;
}

Processes::Processes(EventLoop& clock, uint64_t seed, WorldOptions options,
                     const protocol::RunSettings& settings)
    : clock_(clock), random_(seed), seed_(seed), options_(options), settings_(settings) {}

void Processes::note(const Process& process, const std::string& what) const {
  if (on_note) on_note(process.name, what);
}

Process& Processes::add(const Process* after) {
  all_.push_back(std::make_unique<Process>());
  Process& process = *all_.back();
  process.machine = after == nullptr ? machines_.size() : after->machine;
  if (after == nullptr) machines_.emplace_back();
  PCCL_ASSERT(machines_[process.machine] == nullptr || !machines_[process.machine]->alive);
  machines_[process.machine] = &process;
  process.name = "p" + std::to_string(all_.size());
  process.group = group_name(all_.size());
  process.meets.open(process.group);
  note(process, after == nullptr ? "begins" : "begins at the address of " + after->name);
  return process;
}

std::vector<Process*> Processes::alive() const {
  std::vector<Process*> found;
  for (const auto& process : all_)
    if (process->alive) found.push_back(process.get());
  return found;
}

protocol::ReconfigureHandle Processes::handle(const Process& process) {
  return {{"10.0.0." + std::to_string(process.machine), kMasterPort},
          process.group,
          process.generation};
}

Process* Processes::at(const Endpoint& endpoint) const {
  const auto found = std::find_if(machines_.begin(), machines_.end(), [&](const Process* one) {
    return one != nullptr && handle(*one).at == endpoint;
  });
  return found != machines_.end() && (*found)->alive ? *found : nullptr;
}

// ---- Time and messages ----

void Processes::run(Process& process, std::function<void()> what) {
  if (!process.alive) return;
  if (process.stopped) return process.backlog.push_back(std::move(what));
  what();
}

void Processes::later(Process& process, std::function<void()> what) {
  const Duration delay = random_.duration(kMessageMin, options_.control_delay_max);
  clock_.after(delay, [&process, what = std::move(what)] { run(process, what); });
}

void Processes::send(const Process& from, Process& to, std::function<void()> what) {
  const Duration delay = random_.duration(kMessageMin, options_.control_delay_max);
  const auto source = static_cast<Network::Host>(from.machine);
  const auto target = static_cast<Network::Host>(to.machine);
  clock_.after(delay, [this, source, target, &to, what = std::move(what)] {
    network_.pass(source, target, [&to, what] { run(to, what); });
  });
}

void Processes::arm(Process& process) {
  const uint64_t armed = ++process.timer;
  const auto due = process.meets.deadline();
  if (!due) return;
  clock_.at(*due, [this, &process, armed] {
    run(process, [this, &process, armed] {
      if (armed == process.timer) carry_out(process, process.meets.expire(clock_.now()));
    });
  });
}

// ---- Calls ----

void Processes::record(const Process& process, Attempt& attempt, Attempt::Outcome outcome) {
  constexpr const char* kNames[] = {"succeeds", "fails", "is not called", "is over with it"};
  note(process,
       "reconfigure " + std::to_string(attempt.uuid) + " " + kNames[static_cast<size_t>(outcome)]);
  PCCL_ASSERT(attempt.outcomes.emplace(&process, outcome).second);
  if (!attempt.over()) return;
  std::erase_if(attempts_, [&attempt](const auto& one) { return one.get() == &attempt; });
  on_over(attempt);
}

void Processes::open(const std::shared_ptr<Attempt>& attempt) {
  attempts_.push_back(attempt);
  for (const Process* one : attempt->listed) {
    const bool is_alone =
        std::any_of(attempt->listed.begin(), attempt->listed.end(),
                    [&](const Process* other) { return other != one && is_cut(*one, *other); });
    if (!one->stopped && !is_alone) continue;
    attempt->touched.insert(one);
    attempt->only_losses = false;
  }
}

void Processes::skip_call(Process& process, const std::shared_ptr<Attempt>& attempt) {
  if (attempt->outcomes.contains(&process)) return;  // it was killed before
  attempt->may_fail = true;
  record(process, *attempt, Attempt::Outcome::kNotCalled);
}

// As Reconfiguration::meet(): the errors first, which leave all as it was.
void Processes::call(Process& process, const std::shared_ptr<Attempt>& attempt,
                     const Handles& handles, Duration timeout) {
  if (!process.alive) return;
  if (process.stopped) {
    process.backlog.emplace_back(
        [this, &process, attempt, handles, timeout] { call(process, attempt, handles, timeout); });
    return;
  }
  const auto own = std::find(handles.begin(), handles.end(), handle(process));
  if (process.call != nullptr || own == handles.end()) return skip_call(process, attempt);
  const bool used = !process.used.insert({handles[0].group, attempt->uuid}).second;
  const protocol::Rendezvous seen{.uuid = attempt->uuid,
                                  .handles = handles,
                                  .rank = static_cast<uint32_t>(own - handles.begin()),
                                  .refusal = used ? "the uuid was already used" : ""};
  if (used && seen.rank == 0) return skip_call(process, attempt);
  attempt->may_fail |= used;
  timeout = used ? std::min(timeout, kRefusalMax) : timeout;
  const auto call = std::make_shared<Process::Call>();
  call->attempt = attempt;
  call->until = clock_.now() + timeout;
  for (const auto& one : handles) call->met.push_back(one.group);
  process.call = call;
  attempt->last_event = clock_.now();
  note(process, "calls reconfigure " + std::to_string(attempt->uuid) + " as rank " +
                    std::to_string(seen.rank) + " of " + std::to_string(handles.size()));
  if (!used) {
    call->known = true;
    const master::Rendezvous::Call called{
        attempt->uuid, handles, seen.rank, call->until, settings_.peer_timeout, clock_.now()};
    carry_out(process, process.meets.call(process.group, called));
  }
  if (used || !regroup(process, call, seen, timeout)) join(process, call, seen, timeout);
  end_in_time(process, call, call->until + kReasonGrace + kPollMax + kSlack);
}

bool Processes::may_regroup(const Process& process, const Handles& handles) {
  const auto& met = process.met;
  return process.peer != nullptr && !process.peer->gone() && !met.empty() &&
         met[0] == handles[0].group &&
         std::all_of(handles.begin(), handles.end(), [&met](const auto& handle) {
           return std::find(met.begin(), met.end(), handle.group) != met.end();
         });
}

// False: the process has to go to the host by a new connection.
bool Processes::regroup(Process& process, const std::shared_ptr<Process::Call>& call,
                        const protocol::Rendezvous& seen, Duration timeout) {
  if (!may_regroup(process, seen.handles)) return false;
  const auto over = [this, &process, call, seen](const peer::FinishJoint& result) {
    call->regroups = false;
    if (result.elsewhere) {
      call->peer = nullptr;
      return later(process, [this, &process, call, seen] {
        if (process.call != call) return;
        const Duration left = std::max(call->until - clock_.now(), Duration{1});
        if (!call->interrupted && !call->over) return join(process, call, seen, left);
        call->ended = true;
        end_call(process, call, Status{Code::kInvalidState, "it was given up", {}});
      });
    }
    call->ended = true;
    if (result.status.ok()) {
      ++regroups_;
      note(process, "keeps its run");
      if (handle(*call->attempt->listed[0]).group == seen.handles[0].group)
        call->attempt->run = call->run;
    }
    later(process, [this, &process, call, how = result.status] { end_call(process, call, how); });
  };
  if (!Cluster::workload(*process.peer).regroup(seen, timeout, over)) return false;
  call->regroups = true;
  call->run = process.run;
  call->peer = process.peer;
  return true;
}

void Processes::join(Process& process, const std::shared_ptr<Process::Call>& call,
                     const protocol::Rendezvous& seen, Duration timeout) {
  HostedRun& run = run_of(*call->attempt, seen.handles[0]);
  call->run = &run;
  if (handle(*call->attempt->listed[0]) == seen.handles[0]) call->attempt->run = &run;
  call->peer = &run.add(process, settings_, seen, timeout, [this, &process, call](const auto& how) {
    call->ended = true;
    if (how.ok() && process.peer != nullptr)
      Cluster::workload(*call->peer).begin_with(Cluster::workload(*process.peer));
    later(process, [this, &process, call, how] { end_call(process, call, how); });
  });
  for (const auto& cut : cuts_) apply(*cut, run, process, *call->peer);
}

// The outcome for the application, as Reconfiguration::outcome() has it.
void Processes::end_call(Process& process, const std::shared_ptr<Process::Call>& call,
                         const Status& joined) {
  PCCL_ASSERT(process.call == call);
  Status why = joined;
  if (!joined.ok() && call->over) why = *call->over;
  if (call->interrupted) why = Status{Code::kInvalidState, "abort() has ended it", {}};
  if (why.ok()) {
    const bool stays = process.peer == call->peer;
    if (process.peer != nullptr && !stays && !process.peer->gone()) process.peer->leave();
    process.peer = call->peer;
    process.run = call->run;
    process.met = call->met;
  } else {
    note(process, "the call ends: " + why.message);
    if (joined.ok()) call->peer->leave();
  }
  process.call.reset();
  if (call->known) {
    std::optional<protocol::Reject> failed;
    if (!why.ok()) failed = protocol::Reject{why.code, why.message};
    carry_out(process, process.meets.over(process.group, failed));
    ++process.generation;
  }
  record(process, *call->attempt,
         why.ok() ? Attempt::Outcome::kSucceeded : Attempt::Outcome::kFailed);
}

void Processes::interrupt(Process& process) {
  PCCL_ASSERT(process.call != nullptr);
  note(process, "aborts");
  process.call->interrupted = true;
  give_up_soon(process);
}

void Processes::give_up_soon(Process& process) {
  clock_.after(random_.duration(Duration{0}, kPollMax), [&process, call = process.call] {
    run(process, [&process, call] {
      if (process.call != call || call->peer == nullptr || call->ended) return;
      const bool asks = call->regroups && !call->interrupted;
      asks ? Cluster::workload(*call->peer).give_up_regroup() : call->peer->leave();
    });
  });
}

void Processes::end_in_time(Process& process, const std::shared_ptr<Process::Call>& call,
                            Instant limit) {
  clock_.at(limit, [this, &process, call] {
    if (!process.alive || process.call != call) return;
    const Instant resumed = process.went_on + kReasonGrace + kPollMax + kSlack;
    if (process.stopped || clock_.now() < resumed)
      return end_in_time(process, call, std::max(clock_.now() + kSlack, resumed));
    on_violation("P4 " + process.name + " is still in reconfigure " +
                 std::to_string(call->attempt->uuid) + " after its timeout");
  });
}

// ---- Peers at a master ----

HostedRun& Processes::run_of(const Attempt& attempt, const protocol::ReconfigureHandle& host) {
  const std::string name = master::Rendezvous::run_name(host.group, attempt.uuid);
  const auto known = by_name_.find(name);
  if (known != by_name_.end() && known->second->host() != nullptr && known->second->host()->alive)
    return *known->second;
  WorldOptions options = options_;
  const uint64_t seed = mix(seed_, runs_.size() + 1);
  options.seed = seed;
  const HostedRun::Callbacks callbacks{
      .arrive = [this](HostedRun& run, master::ConnectionId id,
                       const protocol::Hello& hello) { arrive(run, id, hello); },
      .closed = [this](HostedRun& run, master::ConnectionId id) { closed(run, id); },
      .begun =
          [this](HostedRun& run) { carry_out(*run.host(), run.host()->meets.begun(run.name())); },
      .offer = [this](HostedRun& run, master::ConnectionId id, uint32_t rank,
                      const protocol::Regroup& message) { offer(run, id, rank, message); },
      .regrouped = [](HostedRun& run,
                      bool begun) { run.host()->meets.regrouped(run.name(), begun); }};
  runs_.emplace_back(name, seed, options, clock_, at(host.at), callbacks);
  HostedRun& run = runs_.back();
  by_name_[name] = &run;
  const std::string mark = "run " + std::to_string(runs_.size()) + " ";
  run.world().on_note = [this, mark](const std::string& line) {
    if (on_note) on_note(mark, line);
  };
  return run;
}

void Processes::arrive(HostedRun& run, master::ConnectionId id, const protocol::Hello& hello) {
  Process& host = *run.host();
  const uint64_t door = ++connections_;
  doors_[door] = {&run, id};
  const Duration asked = std::chrono::milliseconds(hello.join_timeout_ms);
  keep_pinging(door);
  carry_out(host,
            host.meets.arrive({door}, *hello.rendezvous, clock_.now() + std::min(asked, kWaitMax)));
}

void Processes::keep_pinging(uint64_t door) {
  clock_.after(protocol::beat_of(settings_.peer_timeout), [this, door] {
    const auto found = doors_.find(door);
    if (found == doors_.end() || !found->second.waits) return;
    Process& host = *found->second.run->host();
    if (!host.alive) return;
    if (!host.stopped) found->second.run->world().ping(found->second.id);
    keep_pinging(door);
  });
}

uint64_t Processes::door_of(const HostedRun& run, master::ConnectionId id) const {
  const auto found = std::find_if(doors_.begin(), doors_.end(), [&](const auto& one) {
    return one.second.run == &run && one.second.id == id;
  });
  return found == doors_.end() ? 0 : found->first;
}

void Processes::offer(HostedRun& run, master::ConnectionId id, uint32_t rank,
                      const protocol::Regroup& message) {
  uint64_t door = door_of(run, id);
  if (door == 0) doors_[door = ++connections_] = {&run, id, false};  // it has come again
  doors_.at(door).offers = message.with.uuid;
  const Duration asked = std::chrono::milliseconds(message.timeout_ms);
  Process& host = *run.host();
  carry_out(host, host.meets.offer({door}, run.name(), rank, message.with,
                                   clock_.now() + std::min(asked, kWaitMax)));
}

void Processes::closed(const HostedRun& run, master::ConnectionId id) {
  const uint64_t door = door_of(run, id);
  if (door == 0) return;  // of a member that came again
  doors_.erase(door);
  carry_out(*run.host(), run.host()->meets.closed({door}));
}

// ---- Decisions of the rendezvous ----

void Processes::carry_out(Process& process, const master::Rendezvous::Decisions& decisions) {
  PCCL_ASSERT(process.alive);
  for (const auto& decision : decisions)
    std::visit([this, &process](const auto& what) { carry_out(process, what); }, decision);
  process.meets.check();
  arm(process);
}

void Processes::carry_out(Process& /*process*/, const master::Rendezvous::Admit& decision) {
  Door& door = doors_.at(decision.connection.value);
  door.waits = false;
  door.run->world().admit(door.id);
}

void Processes::carry_out(Process& /*process*/, const master::Rendezvous::SendToDoor& decision) {
  Door& door = doors_.at(decision.connection.value);
  door.run->world().answer(door.id, {*std::exchange(door.offers, std::nullopt), Code::kOk, {}});
}

void Processes::carry_out(Process& /*process*/, const master::Rendezvous::Regroup& decision) {
  master::RegroupAgreed agreed{decision.uuid, {}};
  for (const master::ConnectionId id : decision.members) {
    Door& door = doors_.at(id.value);
    door.offers.reset();
    agreed.members.push_back(door.id);
  }
  by_name_.at(decision.run)->world().regroup(agreed);
}

void Processes::carry_out(Process& process, const master::Rendezvous::Refuse& decision) {
  if (const auto offers = doors_.find(decision.connection.value);
      offers != doors_.end() && offers->second.offers) {
    Door& door = offers->second;
    const int64_t uuid = *std::exchange(door.offers, std::nullopt);
    return door.run->world().answer(door.id, {uuid, decision.why.code, decision.why.text});
  }
  if (const auto door = doors_.extract(decision.connection.value); !door.empty())
    return door.mapped().run->world().refuse(door.mapped().id, decision.why);
  const uint64_t id = decision.connection.value;
  const auto sent = invitations_.find(id);
  if (sent == invitations_.end()) return;  // it is over for the host
  send(process, *sent->second.from, [this, id, why = decision.why] {
    const auto answered = invitations_.extract(id);
    if (answered.empty()) return;
    Process& host = *answered.mapped().from;
    carry_out(host, host.meets.declined(host.group, answered.mapped().rank, why));
  });
}

void Processes::carry_out(Process& /*process*/, const master::Rendezvous::End& decision) {
  const auto run = by_name_.find(decision.run);
  if (run != by_name_.end()) run->second->world().end_run(decision.why);  // else nobody has come
}

void Processes::carry_out(Process& process, const master::Rendezvous::Fail& decision) {
  PCCL_ASSERT(decision.group == process.group && process.call != nullptr);
  process.call->over = Status{decision.why.code, decision.why.text, {}};
  give_up_soon(process);
}

void Processes::carry_out(Process& process, const master::Rendezvous::Invite& decision) {
  Process* const to = at(decision.seen.handles[decision.seen.rank].at);
  const uint64_t id = ++connections_;
  invitations_[id] = {&process, to, decision.seen.rank};
  if (options_.plant == Bug::kNoInvitation) return;
  if (to == nullptr) return later(process, [this, id] { unreachable(id, "connection refused"); });
  if (!hears(process, *to))
    lose_invitations([id](uint64_t one, const auto&) { return one == id; }, "connection timed out");
  send(process, *to, [this, id, to, decision] {
    if (invitations_.contains(id))
      carry_out(*to, to->meets.arrive({id}, decision.seen, decision.until));
  });
}

void Processes::carry_out(Process& process, const master::Rendezvous::Dismiss& /*decision*/) {
  std::vector<uint64_t> sent;
  for (const auto& [id, invitation] : invitations_)
    if (invitation.from == &process) sent.push_back(id);
  for (const uint64_t id : sent) withdraw(id);
}

// ---- Invitations ----

void Processes::withdraw(uint64_t invitation) {
  const auto sent = invitations_.extract(invitation);
  if (sent.empty() || sent.mapped().to == nullptr) return;
  Process& to = *sent.mapped().to;
  send(*sent.mapped().from, to,
       [this, &to, invitation] { carry_out(to, to.meets.closed({invitation})); });
}

void Processes::unreachable(uint64_t invitation, const std::string& why) {
  const auto sent = invitations_.extract(invitation);
  if (sent.empty()) return;
  Process& host = *sent.mapped().from;
  if (host.alive)
    carry_out(host, host.meets.unreachable(host.group, sent.mapped().rank,
                                           Status{Code::kSystem, why, {}}));
}

bool Processes::hears(const Process& from, const Process& to) const {
  return !from.stopped && !to.stopped && !is_cut(from, to);
}

// If the two ends of an invitation still do not hear each other after peer_timeout, both close it.
template <typename Affects>
void Processes::lose_invitations(const Affects& affects, const std::string& why) {
  clock_.after(settings_.peer_timeout, [this, affects, why] {
    const auto all = invitations_;
    for (const auto& [id, one] : all) {
      if (one.to == nullptr || !affects(id, one) || hears(*one.from, *one.to)) continue;
      if (!invitations_.contains(id)) continue;
      Process& to = *one.to;
      run(to, [this, &to, invitation = id] { carry_out(to, to.meets.closed({invitation})); });
      run(*one.from, [this, invitation = id, why] { unreachable(invitation, why); });
    }
  });
}

// ---- Faults ----

void Processes::touch(const Process& process, bool kills) {
  for (const auto& attempt : attempts_) {
    const Process* const listed = attempt->listed_at(process.machine);
    if (listed == nullptr) continue;
    attempt->touched.insert(listed);
    attempt->last_event = clock_.now();
    attempt->only_losses &= kills;
  }
}

void Processes::kill(Process& process) {
  if (!process.alive) return;
  note(process, "killed");
  touch(process, true);
  process.alive = process.stopped = false;
  process.backlog.clear();
  for (HostedRun& run : runs_) {
    for (const auto& [owner, peer] : run.peers())
      if (owner == &process) peer->kill("killed");
    if (run.host() == &process) run.world().kill_master();
  }
  const auto all = invitations_;
  for (const auto& [id, one] : all) {
    if (one.from == &process) withdraw(id);
    if (one.to == &process)
      send(process, *one.from,
           [this, invitation = id] { unreachable(invitation, "connection reset"); });
  }
  process.call.reset();
  const auto attempts = attempts_;
  for (const auto& attempt : attempts) {
    if (attempt->listed_at(process.machine) == &process && !attempt->outcomes.contains(&process))
      record(process, *attempt, Attempt::Outcome::kDied);
  }
}

void Processes::stop(Process& process) {
  PCCL_ASSERT(process.alive && !process.stopped);
  note(process, "stopped");
  touch(process);
  process.stopped = true;
  ++process.stops;
  for (HostedRun& run : runs_) {
    for (const auto& [owner, peer] : run.peers())
      if (owner == &process && peer->alive()) peer->stop();
    if (run.host() == &process) run.world().stop_master();
  }
  lose_invitations(
      [&process, count = process.stops](uint64_t /*id*/, const Invitation& one) {
        return process.stops == count && (one.from == &process || one.to == &process);
      },
      "nothing was heard of it");
}

void Processes::go_on(Process& process) {
  if (!process.stopped) return;
  note(process, "goes on");
  process.stopped = false;
  process.went_on = clock_.now();
  for (HostedRun& run : runs_) {
    if (run.host() == &process) run.world().master_goes_on();
    for (const auto& [owner, peer] : run.peers())
      if (owner == &process) peer->go_on();
  }
  while (!process.backlog.empty() && process.alive && !process.stopped) {
    const auto next = std::move(process.backlog.front());
    process.backlog.pop_front();
    next();
  }
}

bool Processes::is_cut(const Process& a, const Process& b) const {
  return std::any_of(cuts_.begin(), cuts_.end(), [&](const auto& one) {
    return (one->a == a.machine && one->b == b.machine) ||
           (one->a == b.machine && one->b == a.machine);
  });
}

void Processes::block(Cut& cut, HostedRun& run, Network::Host from, Network::Host to) {
  World& world = run.world();
  world.block(from, to);
  cut.lifts.emplace_back([&world, from, to] { world.lift(from, to); });
}

// Blocks the paths of this peer of the run that the cut affects.
void Processes::apply(Cut& cut, HostedRun& run, const Process& process, const PeerNode& peer) {
  const auto beyond = [&](const Process& other) {
    return (cut.a == process.machine && cut.b == other.machine) ||
           (cut.b == process.machine && cut.a == other.machine);
  };
  if (run.host() != nullptr && beyond(*run.host())) {
    block(cut, run, peer.port(), Network::kMaster);
    block(cut, run, Network::kMaster, peer.port());
  }
  for (const auto& [other, node] : run.peers()) {
    if (node->port() >= peer.port() || !beyond(*other)) continue;  // each pair once
    block(cut, run, peer.port(), node->port());
    block(cut, run, node->port(), peer.port());
  }
}

std::function<void()> Processes::cut(Process& a, Process& b) {
  note(a, "is cut off from " + b.name);
  for (const auto& attempt : attempts_) {
    const Process* const one = attempt->listed_at(a.machine);
    const Process* const other = attempt->listed_at(b.machine);
    if (one == nullptr || other == nullptr) continue;
    attempt->touched.insert({one, other});
    attempt->only_losses = false;
  }
  const auto cut = std::make_shared<Cut>(Cut{a.machine, b.machine, {}});
  cuts_.push_back(cut);
  const auto one = static_cast<Network::Host>(a.machine),
             other = static_cast<Network::Host>(b.machine);
  network_.block(one, other);
  network_.block(other, one);
  for (HostedRun& run : runs_)
    for (const auto& [process, peer] : run.peers()) apply(*cut, run, *process, *peer);
  lose_invitations(
      [this, cut](uint64_t /*id*/, const Invitation& /*one*/) {
        return std::find(cuts_.begin(), cuts_.end(), cut) != cuts_.end();
      },
      "nothing was heard of it");
  return [this, cut, one, other, a = &a, b = &b] {
    note(*a, "is no longer cut off from " + b->name);
    std::erase(cuts_, cut);
    network_.lift(one, other);
    network_.lift(other, one);
    for (const auto& lift : cut->lifts) lift();
  };
}

}  // namespace pccl::sim
