// The happy path: accept, wait for Hello or Resume, hand the connection to the core of the run it names (made if it is
// new), and from then on feed that core and carry out its effects. What can go wrong: a stranger connects (closed when
// its bytes make no sense, or after kHelloTimeout), a peer breaks the protocol (its core closes it), too many come.

#include "master/shell.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <utility>
#include <vector>

#include "csrc/net/stream.h"
#include "csrc/protocol/codec.h"
#include "csrc/protocol/limits.h"
#include "master/core.h"

namespace pccl::master {
namespace {

// Connections that have not said which run they belong to.
constexpr size_t kUnintroducedMax = 4096;
constexpr Duration kDrainPause = std::chrono::milliseconds(5);

uint64_t random_id() {
  uint64_t id = 0;
  while (getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id)) {
  }
  return id;
}

// Without a journal a restarted master must never give out an incarnation again: seconds since 1970 grow.
uint32_t incarnation_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(since).count());
}

const std::string* run_named(const protocol::Message& message) {
  if (const auto* hello = std::get_if<protocol::Hello>(&message)) return &hello->run;
  if (const auto* resume = std::get_if<protocol::Resume>(&message)) return &resume->run;
  return nullptr;
}

}  // namespace

struct Shell::Inside {
  struct Run {
    std::string name;
    MasterCore core;
    std::unique_ptr<net::Timer> timer;
  };
  struct Connection {
    std::unique_ptr<net::Stream> stream;
    protocol::Decoder decoder;
    Run* run = nullptr;  // none until introduced
    Instant since;
    bool closing = false;
  };

  void accept(net::Socket socket);
  void heard(ConnectionId id, std::span<const std::byte> bytes);
  void hear(ConnectionId id, const protocol::Message& message);
  Run* find_or_make(const std::string& name);
  void step(Run& run, const Event& event);
  void perform(Run& run, const Effect& effect);
  void closed(ConnectionId id, const std::string& why);
  void refuse(ConnectionId id, const std::string& why);
  void sweep();

  std::map<ConnectionId, Connection> connections;
  std::map<std::string, Run> runs;
  uint64_t last_connection = 0;
  bool loopback_only = false;
  std::unique_ptr<net::Timer> sweeper;
  std::unique_ptr<net::Listener> listener;
  uint16_t port = 0;
  net::Loop loop{"pccl-master"};
};

void Shell::Inside::accept(net::Socket socket) {
  const auto waiting = std::count_if(connections.begin(), connections.end(),
                                     [](const auto& entry) { return entry.second.run == nullptr; });
  if (static_cast<size_t>(waiting) >= kUnintroducedMax) return;  // closed by its destructor
  const ConnectionId id{++last_connection};
  Connection& connection = connections[id];
  connection.since = monotonic_now();
  connection.stream = std::make_unique<net::Stream>(
      loop, std::move(socket),
      net::Stream::Callbacks{.on_bytes = [this, id](std::span<const std::byte> bytes) { heard(id, bytes); },
                             .on_closed =
                                 [this, id](const Status& why) {
                                   loop.post([this, id, why] { closed(id, why.message); });
                                 }});
}

void Shell::Inside::heard(ConnectionId id, std::span<const std::byte> bytes) {
  auto found = connections.find(id);
  if (found == connections.end() || found->second.closing) return;
  found->second.decoder.feed(bytes);
  while (found != connections.end() && !found->second.closing) {
    auto message = found->second.decoder.next();
    if (!message.ok()) return refuse(id, message.status().message);
    if (!message.value()) return;
    hear(id, *message.value());
    found = connections.find(id);
  }
}

void Shell::Inside::hear(ConnectionId id, const protocol::Message& message) {
  Connection& connection = connections.at(id);
  if (connection.run == nullptr) {
    const std::string* name = run_named(message);
    if (name == nullptr) return refuse(id, std::string(protocol::name(message)) + " before Hello");
    connection.run = find_or_make(*name);
    if (connection.run == nullptr) return refuse(id, "this master serves " + std::to_string(protocol::kRunsMax) + " runs already");
    const net::Socket& socket = connection.stream->socket();
    step(*connection.run, Accepted{id, socket.peer_host(), socket.is_loopback()});
  }
  step(*connection.run, Received{id, message});
}

Shell::Inside::Run* Shell::Inside::find_or_make(const std::string& name) {
  const auto found = runs.find(name);
  if (found != runs.end()) return &found->second;
  std::erase_if(runs, [&](const auto& entry) {
    const bool used = std::any_of(connections.begin(), connections.end(),
                                  [&](const auto& connection) { return connection.second.run == &entry.second; });
    return !used && entry.second.core.idle();
  });
  if (runs.size() >= protocol::kRunsMax) return nullptr;
  Options options;
  options.run = name;
  options.run_id = random_id();
  options.incarnation = incarnation_now();
  options.loopback_only = loopback_only;
  Run& run = runs.emplace(name, Run{name, MasterCore(std::move(options)), nullptr}).first->second;
  run.timer = std::make_unique<net::Timer>(loop, [this, &run] { step(run, TimePassed{}); });
  return &run;
}

void Shell::Inside::step(Run& run, const Event& event) {
  Effects effects;
  run.core.step(event, monotonic_now(), effects);
  for (size_t i = 0; i < effects.size(); ++i) perform(run, effects[i]);
  const auto deadline = run.core.deadline();
  if (deadline) run.timer->arm(*deadline);
  else run.timer->disarm();
}

void Shell::Inside::perform(Run& run, const Effect& effect) {
  if (const auto* send = std::get_if<Send>(&effect)) {
    const auto found = connections.find(send->connection);
    if (found == connections.end() || found->second.closing) return;
    std::vector<std::byte> bytes;
    protocol::encode(send->message, bytes);
    found->second.stream->send(bytes);
  } else if (const auto* close = std::get_if<Close>(&effect)) {
    const auto found = connections.find(close->connection);
    if (found == connections.end() || std::exchange(found->second.closing, true)) return;
    found->second.stream->close_after_flush();
  } else if (const auto* persist = std::get_if<Persist>(&effect)) {
    // There is no journal in this version: what is told is remembered as long as this process lives.
    loop.post([this, name = run.name, token = persist->token] {
      const auto found = runs.find(name);
      if (found != runs.end()) step(found->second, Persisted{token});
    });
  } else if (const auto* line = std::get_if<Log>(&effect)) {
    log(line->level, "run " + run.name + ": " + line->text);
  }
}

void Shell::Inside::closed(ConnectionId id, const std::string& why) {
  const auto node = connections.extract(id);
  if (node.empty()) return;
  Run* const run = node.mapped().run;
  if (run != nullptr && !node.mapped().closing) step(*run, Closed{id, why});
}

// A connection that breaks the rules before any core knows it, or in a way that no core can see.
void Shell::Inside::refuse(ConnectionId id, const std::string& why) {
  log(LogLevel::kInfo, "closed a connection: " + why);
  Connection& connection = connections.at(id);
  Run* const run = connection.run;
  connection.closing = true;
  connection.stream->close_after_flush();
  if (run != nullptr) step(*run, Closed{id, why});
}

// Closes who has connected and says nothing.
void Shell::Inside::sweep() {
  const Instant now = monotonic_now();
  std::vector<ConnectionId> silent;
  for (const auto& [id, connection] : connections) {
    const bool late = now - connection.since > protocol::kHelloTimeout;
    if (connection.run == nullptr && !connection.closing && late) silent.push_back(id);
  }
  for (const ConnectionId id : silent) refuse(id, "it has not introduced itself");
  sweeper->arm(now + protocol::kHelloTimeout / 5);
}

// ---- Shell ----

Shell::Shell() : inside_(std::make_unique<Inside>()) {}

Result<std::unique_ptr<Shell>> Shell::open(const net::Endpoint& at) {
  std::unique_ptr<Shell> shell(new Shell());
  Inside* const inside = shell->inside_.get();
  if (!inside->loop.status().ok()) return inside->loop.status();
  std::promise<Status> opened;
  inside->loop.post([&, inside] {
    auto listener = net::Listener::open(inside->loop, at, [inside](net::Socket socket) { inside->accept(std::move(socket)); });
    if (!listener.ok()) return opened.set_value(listener.status());
    inside->listener = std::move(listener.value());
    inside->port = inside->listener->port();
    inside->loopback_only = at.host == "localhost" || at.host == "::1" || at.host.starts_with("127.");
    inside->sweeper = std::make_unique<net::Timer>(inside->loop, [inside] { inside->sweep(); });
    inside->sweep();
    opened.set_value({});
  });
  const Status status = opened.get_future().get();
  if (!status.ok()) return status;
  return shell;
}

Shell::~Shell() {
  Inside* const inside = inside_.get();
  inside->loop.post([inside] {
    inside->listener.reset();
    inside->sweeper.reset();
    inside->connections.clear();
    inside->runs.clear();
  });
  inside->loop.stop();
}

uint16_t Shell::port() const { return inside_->port; }

void Shell::drain(Duration at_most) {
  const Instant end = monotonic_now() + at_most;
  while (monotonic_now() < end) {
    std::promise<bool> settled;
    inside_->loop.post([&, inside = inside_.get()] {
      settled.set_value(std::all_of(inside->runs.begin(), inside->runs.end(),
                                    [](const auto& entry) { return entry.second.core.settled(); }));
    });
    if (settled.get_future().get()) return;
    std::this_thread::sleep_for(kDrainPause);
  }
}

}  // namespace pccl::master
