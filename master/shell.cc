// The happy path: a connection is accepted, its first message names a run; from then on every
// message goes to that run's core, and what the core wants is done at once. Time comes from one
// timer per run. What can go wrong: a stranger says nothing (closed after kHelloTimeout, the oldest
// first when there are too many), or something that is no message (closed); a peer disconnects (its
// core is told); too many runs or connections (refused); too many bytes of too many unfinished
// messages, or too many that nobody takes (holdings.h says who is closed). Nothing here waits, and
// nothing here decides who agrees to what.

#include "master/shell.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/loop.h"
#include "csrc/net/stream.h"
#include "csrc/protocol/codec.h"
#include "csrc/protocol/limits.h"
#include "master/core.h"
#include "master/holdings.h"
#include "master/introduction.h"
#include "master/shell_control.h"
#include "master/shell_journal.h"
#include "master/words.h"

namespace pccl::master {
namespace {

// Connections that are of no run, because they have not introduced themselves or are being closed:
// a flood of them ends its own oldest.
constexpr size_t kStrangersMax = 4096;
// Descriptors that are neither theirs nor open to newcomers: an eighth, for members that come back,
// and a few for the master itself and for people who ask it.
constexpr size_t kOwnDescriptors = 16 + ControlSocket::kConnectionsMax;

// So many connections of runs let one more newcomer in.
size_t connections_max() {
  const size_t all = net::descriptors_max();
  const size_t kept = net::strangers_max(kStrangersMax) + all / 8 + kOwnDescriptors;
  return all > kept ? all - kept : 1;
}

uint64_t random_number() {
  uint64_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}

// Grows with every start of the master, so that numbers of peers and epochs are never given twice:
// the clock's seconds, or one more than the journal has when the clock was set back.
uint32_t incarnation_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

}  // namespace

bool is_loopback(const net::Endpoint& at) {
  if (at.host.empty()) return false;
  auto addresses = net::resolve_now(at.host, at.port);
  return addresses.ok() &&
         std::all_of(addresses.value().begin(), addresses.value().end(),
                     [](const net::Address& address) { return address.is_loopback(); });
}

// What is below `loop` belongs to the loop.
struct Shell::Inside {
  struct Run {
    Run(net::Loop& loop, const Options& options, const RunRecord& remembered,
        std::function<void()> on_time)
        : name(options.run),
          id(options.run_id),
          core(options, remembered),
          timer(loop, std::move(on_time)) {}
    const std::string name;
    const uint64_t id;
    MasterCore core;
    net::Timer timer;
    std::deque<uint64_t> persisted;  // without a journal: tokens of records, as durable as can be
    std::optional<std::deque<Event>> waiting;  // until the journal knows the run
  };
  struct Connection {
    std::unique_ptr<net::Stream> stream;
    std::string host;  // numeric; kept, as a connection that is reset has none any more
    protocol::Decoder decoder;
    Run* run = nullptr;     // none before its introduction, nor once it is closing: a stranger
    uint64_t stranger = 0;  // which one
    bool closing = false;
  };

  Inside(const net::Endpoint& at, const Budgets& of)
      : loopback_only(is_loopback(at)), budgets(of) {}

  Status open(const net::Endpoint& at, const Remembering& remembering);
  Status open_journal(const Remembering& remembering);
  Status open_control(const std::string& journal_path);
  nlohmann::json answer(const ControlRequest& request) const;
  void close_all();
  void start_draining(std::shared_ptr<std::promise<void>> drained);

  // ---- Connections ----
  void accept(net::Socket socket);
  void on_bytes(ConnectionId id, std::span<const std::byte> bytes);
  void on_closed(ConnectionId id, const Status& why);
  void introduce(ConnectionId id, const protocol::Message& message);
  std::optional<protocol::Reject> refuse_number() const;
  void refuse(ConnectionId id, const protocol::Reject& reject);
  void send(ConnectionId id, const protocol::Message& message);
  void refuse_bytes(ConnectionId id, const std::string& why);
  void close(ConnectionId id);
  void drop(ConnectionId id);
  void add_stranger(ConnectionId id);
  void close_old_strangers();
  void hold(ConnectionId id);
  void close_those_who_hold_much();
  Holdings::Party party(const Connection& of) const { return of.run == nullptr ? 0 : of.run->id; }

  // ---- Runs ----
  Run* open_run(const std::string& name);
  Run& make_run(const std::string& name, const RunRecord& remembered);
  void write(const Run& run, Entry entry, std::function<void(Run&)> then);
  void step(Run& run, const Event& event);
  void step_once(Run& run, const Event& event);
  void perform(Run& run, const Effect& effect);
  void on_time(const std::string& name);
  void finish_turn();
  bool has_drained() const;

  const bool loopback_only;
  const Budgets budgets;
  uint32_t incarnation = incarnation_now();
  uint16_t port = 0;
  net::Loop loop{"pccl-master"};
  std::unique_ptr<JournalFile> journal;  // null: the master forgets

  std::unique_ptr<ControlSocket> control;  // with a journal only
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<net::Timer> hello_timer;
  std::map<std::string, std::unique_ptr<Run>> runs;
  std::vector<std::string> idle;  // names of runs that may be forgotten at the end of this turn
  std::map<ConnectionId, Connection> connections;
  struct Stranger {
    ConnectionId connection;
    Instant since;
  };
  std::map<uint64_t, Stranger> strangers;  // oldest first
  uint64_t strangers_seen = 0;
  Holdings undecoded{budgets.undecoded};
  Holdings unsent{budgets.unsent};  // as it was when something was sent last
  uint64_t connections_made = 0;
  std::vector<std::shared_ptr<std::promise<void>>> draining;
  std::vector<std::byte> encoded;
};

Status Shell::Inside::open_journal(const Remembering& remembering) {
  auto opened =
      JournalFile::open(remembering.path, remembering.fresh, incarnation, remembering.on_failure);
  if (!opened.ok()) return opened.status();
  journal = std::move(opened.value());
  Memory memory = journal->memory();
  if (remembering.resume_from) {
    auto entries = resume_from(memory, *remembering.resume_from, random_number());
    if (!entries.ok()) return entries.status();
    for (const Entry& entry : entries.value()) {
      memory.apply(entry);
      journal->write(entry, [] {});
    }
  }
  incarnation = memory.incarnation;
  loop.post([this, memory = std::move(memory)] {
    for (const auto& [name, run] : memory.runs) step(make_run(name, run), TimePassed{});
    idle.clear();  // perhaps there are peers that wait to found it
  });
  return {};
}

Status Shell::Inside::open_control(const std::string& journal_path) {
  if (journal_path.empty()) return {};
  auto opened =
      ControlSocket::open(loop, ControlSocket::path_of(journal_path),
                          [this](const ControlRequest& request) { return answer(request); });
  if (!opened.ok()) return opened.status();
  control = std::move(opened.value());
  return {};
}

// control.h has the words.
nlohmann::json Shell::Inside::answer(const ControlRequest& request) const {
  if (request.command == Command::kForget)
    return error_answer("this master cannot forget a run yet");
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [name, run] : runs) all.push_back({{"run", name}, {"state", "active"}});
  return {{"runs", std::move(all)}};
}

Status Shell::Inside::open(const net::Endpoint& at, const Remembering& remembering) {
  if (!loop.status().ok()) return loop.status();
  if (!remembering.path.empty()) {
    const Status status = open_journal(remembering);
    if (!status.ok()) return status;
  }
  std::promise<Status> opened;
  loop.post([&] {
    Status status = open_control(remembering.path);
    if (!status.ok()) return opened.set_value(std::move(status));
    auto made =
        net::Listener::open(loop, at, [this](net::Socket socket) { accept(std::move(socket)); });
    if (!made.ok()) return opened.set_value(made.status());
    listener = std::move(made.value());
    port = listener->port();
    hello_timer = std::make_unique<net::Timer>(loop, [this] { close_old_strangers(); });
    opened.set_value({});
  });
  return opened.get_future().get();
}

void Shell::Inside::close_all() {
  control.reset();
  listener.reset();
  hello_timer.reset();
  connections.clear();
  runs.clear();
}

// ---- Connections ----

void Shell::Inside::accept(net::Socket socket) {
  const ConnectionId id{++connections_made};
  Connection& connection = connections[id];
  connection.host = socket.peer_host();
  connection.stream = std::make_unique<net::Stream>(
      loop, std::move(socket),
      net::Stream::Callbacks{[this, id](std::span<const std::byte> bytes) { on_bytes(id, bytes); },
                             [this, id](const Status& why) { on_closed(id, why); }});
  add_stranger(id);
  while (strangers.size() > net::strangers_max(kStrangersMax))
    drop(strangers.begin()->second.connection);
}

void Shell::Inside::add_stranger(ConnectionId id) {
  const uint64_t number = ++strangers_seen;
  strangers.erase(std::exchange(connections.at(id).stranger, number));
  strangers[number] = {id, monotonic_now()};
  if (strangers.size() == 1) hello_timer->arm(strangers[number].since + protocol::kHelloTimeout);
}

void Shell::Inside::close_old_strangers() {
  const Instant now = monotonic_now();
  while (!strangers.empty()) {
    const Stranger& oldest = strangers.begin()->second;
    const Instant end = oldest.since + protocol::kHelloTimeout;
    if (end > now) return hello_timer->arm(end);
    log(LogLevel::kInfo, "closed a connection that did not introduce itself");
    drop(oldest.connection);
  }
}

// What came of a message that is not whole yet is kept for it.
void Shell::Inside::hold(ConnectionId id) {
  const Connection& connection = connections.at(id);
  undecoded.set(id, party(connection), connection.decoder.held());
}

void Shell::Inside::close_those_who_hold_much() {
  while (const auto largest = undecoded.excess()) {
    refuse_bytes(*largest, "it holds " + counted(undecoded.of(*largest), "byte") +
                               " of a message that is not whole, the most of all, and all together "
                               "hold more than " +
                               counted(budgets.undecoded, "byte"));
  }
  while (const auto largest = unsent.excess()) {
    // Some of it has left since.
    std::vector<std::pair<ConnectionId, Holdings::Party>> all;
    unsent.for_each([&](ConnectionId id, Holdings::Party of) { all.emplace_back(id, of); });
    for (const auto& [id, of] : all) unsent.set(id, of, connections.at(id).stream->unsent());
    const auto still = unsent.excess();
    if (!still) return;
    refuse_bytes(*still, "it does not read: " + counted(unsent.of(*still), "byte") +
                             " wait for it, the most of all, and for all together wait more than " +
                             counted(budgets.unsent, "byte"));
  }
}

// Its core hears of it as of any end.
void Shell::Inside::refuse_bytes(ConnectionId id, const std::string& why) {
  log(LogLevel::kWarning, "closed the connection of " + connections.at(id).host + ": " + why);
  Run* run = connections.at(id).run;
  drop(id);
  if (run != nullptr) step(*run, Closed{id, why});
}

void Shell::Inside::on_bytes(ConnectionId id, std::span<const std::byte> bytes) {
  Connection& connection = connections.at(id);
  if (connection.closing) return;
  connection.decoder.feed(bytes);
  while (!connection.closing) {
    Result<std::optional<protocol::Message>> next = connection.decoder.next();
    if (!next.ok()) {
      log(LogLevel::kWarning,
          "closed the connection of " + connection.host + ": " + next.status().message);
      Run* run = connection.run;
      close(id);
      if (run != nullptr) step(*run, Closed{id, next.status().message});
      break;
    }
    if (!next.value()) break;
    if (connection.run == nullptr) {
      introduce(id, *next.value());
    } else {
      step(*connection.run, Received{id, std::move(*next.value())});
    }
  }
  hold(id);
  finish_turn();
}

void Shell::Inside::on_closed(ConnectionId id, const Status& why) {
  Run* run = connections.at(id).run;
  drop(id);
  if (run != nullptr) step(*run, Closed{id, why.message});
  finish_turn();
}

void Shell::Inside::introduce(ConnectionId id, const protocol::Message& message) {
  Run* run = nullptr;
  std::optional<protocol::Reject> rejected;
  if (const auto* hello = std::get_if<protocol::Hello>(&message)) {
    rejected = refuse_version(hello->version, hello->library);
    if (!rejected) rejected = refuse_run(hello->run);
    if (!rejected) rejected = refuse_number();
    if (!rejected) run = open_run(hello->run);
  } else if (const auto* resume = std::get_if<protocol::Resume>(&message)) {
    rejected = refuse_version(resume->version, "");
    if (!rejected) rejected = refuse_run(resume->run);
    const auto known = runs.find(resume->run);
    if (known != runs.end()) run = known->second.get();
    if (!rejected && run == nullptr) {
      rejected =
          protocol::Reject{Code::kMasterLost, "this master does not know run \"" + resume->run +
                                                  "\": it was started anew; join again"};
    }
  } else {
    log(LogLevel::kInfo,
        std::string("closed a connection that began with ") + protocol::name(message));
    return close(id);
  }
  if (!rejected && run == nullptr) {
    rejected =
        protocol::Reject{Code::kInvalidState,
                         "this master serves " + std::to_string(runs.size()) +
                             " runs, the most it can: join one of them or start another master"};
  }
  if (rejected) return refuse(id, *rejected);
  Connection& connection = connections.at(id);
  strangers.erase(std::exchange(connection.stranger, 0));
  connection.run = run;
  step(*run, Accepted{id, connection.host, connection.stream->socket().is_loopback()});
  step(*run, Received{id, message});
}

std::optional<protocol::Reject> Shell::Inside::refuse_number() const {
  const size_t introduced = connections.size() - strangers.size();
  if (introduced < connections_max()) return std::nullopt;
  return protocol::Reject{Code::kInvalidState,
                          "this master has " + counted(introduced, "peer") +
                              " connected, the most for which its limit "
                              "of " +
                              std::to_string(net::descriptors_max()) +
                              " open files leaves room: start it with a higher one (ulimit -n), or "
                              "start another master"};
}

void Shell::Inside::refuse(ConnectionId id, const protocol::Reject& reject) {
  log(LogLevel::kInfo, "refused a peer at " + connections.at(id).host + ": " + reject.text);
  send(id, reject);
  close(id);
}

void Shell::Inside::send(ConnectionId id, const protocol::Message& message) {
  encoded.clear();
  protocol::encode(message, encoded);
  const Connection& connection = connections.at(id);
  connection.stream->send(encoded);  // leaves at the end of this turn, with the others
  unsent.set(id, party(connection), connection.stream->unsent());
}

// After what was sent has left. Its end is nobody's concern any more.
void Shell::Inside::close(ConnectionId id) {
  Connection& connection = connections.at(id);
  connection.run = nullptr;
  connection.closing = true;
  connection.decoder = {};
  undecoded.forget(id);
  connection.stream->close_after_flush();
  add_stranger(id);
}

// At once.
void Shell::Inside::drop(ConnectionId id) {
  strangers.erase(connections.at(id).stranger);
  connections.erase(id);
  undecoded.forget(id);
  unsent.forget(id);
}

// ---- Runs ----

// Null if there are too many.
Shell::Inside::Run* Shell::Inside::open_run(const std::string& name) {
  const auto known = runs.find(name);
  if (known != runs.end()) return known->second.get();
  if (runs.size() >= protocol::kRunsMax) return nullptr;
  Run& run = make_run(name, RunRecord{random_number(), {}, {}});
  if (!journal) return &run;
  run.waiting.emplace();
  write(run, RunOpened{name, run.id}, [this](Run& durable) {
    const std::deque<Event> events = std::move(*durable.waiting);
    durable.waiting.reset();
    for (const Event& event : events) step(durable, event);
  });
  return &run;
}

Shell::Inside::Run& Shell::Inside::make_run(const std::string& name, const RunRecord& remembered) {
  const Options options{name, remembered.run_id, incarnation, loopback_only};
  runs[name] = std::make_unique<Run>(loop, options, remembered, [this, name] {
    loop.post([this, name] { on_time(name); });  // later in this turn: what has arrived goes first
  });
  return *runs[name];
}

// `then` on this loop, when it is durable, if the run is still there.
void Shell::Inside::write(const Run& run, Entry entry, std::function<void(Run&)> then) {
  journal->write(std::move(entry),
                 [this, name = run.name, id = run.id, then = std::move(then)]() mutable {
                   loop.post([this, name, id, then = std::move(then)] {
                     const auto found = runs.find(name);
                     if (found == runs.end() || found->second->id != id) return;
                     then(*found->second);
                     finish_turn();
                   });
                 });
}

void Shell::Inside::on_time(const std::string& name) {
  const auto run = runs.find(name);
  if (run != runs.end()) step(*run->second, TimePassed{});
  finish_turn();
}

void Shell::Inside::step(Run& run, const Event& event) {
  if (run.waiting) return run.waiting->push_back(event);
  step_once(run, event);
  while (!run.persisted.empty()) {
    const uint64_t token = run.persisted.front();
    run.persisted.pop_front();
    step_once(run, Persisted{token});
  }
  const auto deadline = run.core.deadline();
  deadline ? run.timer.arm(*deadline) : run.timer.disarm();
  if (run.core.idle()) idle.push_back(run.name);
}

void Shell::Inside::step_once(Run& run, const Event& event) {
  Effects effects;
  run.core.step(event, monotonic_now(), effects);
  for (const Effect& effect : effects) perform(run, effect);
}

void Shell::Inside::perform(Run& run, const Effect& effect) {
  if (const auto* said = std::get_if<Send>(&effect)) {
    send(said->connection, said->message);
  } else if (const auto* closed = std::get_if<Close>(&effect)) {
    close(closed->connection);
  } else if (const auto* persist = std::get_if<Persist>(&effect)) {
    if (!journal) return run.persisted.push_back(persist->token);
    write(run, RunRecorded{run.name, persist->record},
          [this, token = persist->token](Run& durable) { step(durable, Persisted{token}); });
  } else if (const auto* line = std::get_if<Log>(&effect)) {
    log(line->level, "run \"" + run.name + "\": " + line->text);
  }
}

void Shell::Inside::finish_turn() {
  close_those_who_hold_much();
  for (const std::string& name : idle) {
    const auto run = runs.find(name);
    if (run == runs.end() || run->second->waiting || !run->second->core.idle()) continue;
    if (journal) journal->write(RunForgotten{name}, [] {});
    runs.erase(run);
  }
  idle.clear();
  if (draining.empty()) return;
  for (auto& [name, run] : runs) step(*run, Draining{});
  if (!has_drained()) return;
  for (const auto& drained : draining) drained->set_value();
  draining.clear();
}

// ---- The end ----

bool Shell::Inside::has_drained() const {
  return std::all_of(runs.begin(), runs.end(),
                     [](const auto& at) { return at.second->core.settled(); }) &&
         std::none_of(connections.begin(), connections.end(),
                      [](const auto& at) { return at.second.closing; });
}

void Shell::Inside::start_draining(std::shared_ptr<std::promise<void>> drained) {
  draining.push_back(std::move(drained));
  finish_turn();
}

Result<std::unique_ptr<Shell>> Shell::open(const net::Endpoint& at, const Remembering& remembering,
                                           const Budgets& budgets) {
  std::unique_ptr<Shell> shell(new Shell());
  shell->inside_ = std::make_unique<Inside>(at, budgets);
  const Status status = shell->inside_->open(at, remembering);
  if (!status.ok()) return status;
  return shell;
}

Shell::Shell() = default;

Shell::~Shell() {
  Inside* const inside = inside_.get();
  inside->loop.post([inside] { inside->close_all(); });
  inside->loop.stop();
}

uint16_t Shell::port() const { return inside_->port; }

void Shell::drain(Duration at_most) {
  auto drained = std::make_shared<std::promise<void>>();
  std::future<void> done = drained->get_future();
  inside_->loop.post([this, drained] { inside_->start_draining(drained); });
  done.wait_for(at_most);
}

}  // namespace pccl::master
