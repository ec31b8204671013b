// Normal case: a connection is accepted, and its first message names a run. Every further message
// goes to that run's core, and the core's effects are performed at once. One timer per run provides
// the time.
// Failures:
// - A pending connection sends nothing: it is closed after kHelloTimeout, or earlier if it is the
//   oldest of too many.
// - A connection sends bytes that are no message: it is closed.
// - A peer disconnects: its core gets Closed.
// - There are too many runs or connections: the new one is refused.
// - Unfinished messages, or unread ones, take too many bytes: holdings.h chooses the connections to
//   close.
// Nothing here waits, and nothing here takes part in the agreement of the members.

#include "master/shell/shell.h"

#include <algorithm>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/log.h"
#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/handshake_rate.h"
#include "csrc/net/loop.h"
#include "csrc/net/stream.h"
#include "csrc/protocol/codec.h"
#include "csrc/protocol/limits.h"
#include "master/members/admission.h"
#include "master/members/token_admission.h"
#include "master/runs/holdings.h"
#include "master/shell/arrivals.h"
#include "master/shell/control_socket.h"
#include "master/shell/dial_backs.h"
#include "master/shell/keyring_file.h"
#include "master/shell/observing.h"
#include "master/shell/refusal_warnings.h"
#include "master/shell/run_answers.h"
#include "master/shell/run_waits.h"
#include "master/shell/runs.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

// Maximum number of connections without a run (arrivals.h chooses which to close). If a quarter of
// all descriptors is less, that number applies.
constexpr size_t kPendingMax = 4096;
// Bytes: a smaller message is encoded for each receiver, a larger one once for all.
constexpr size_t kEncodedOnceBytes = 64u << 10;
// Descriptors reserved for the master itself, for control clients and for connections back.
constexpr size_t kOwnDescriptors = 16 + ControlSocket::kConnectionsMax + DialBacks::kAtOnceMax;

// The largest number of observers. A process that may have few descriptors needs them for peers.
size_t observers_max() { return std::min(protocol::kObserversMax, net::descriptors_max() / 16); }

// A new peer is admitted only while the runs have fewer connections than this. An eighth of all
// descriptors stays reserved for members that resume.
size_t connections_max() {
  const size_t all = net::descriptors_max();
  const size_t kept = net::pending_max(kPendingMax) + all / 8 + kOwnDescriptors + observers_max();
  return all > kept ? all - kept : 1;
}

}  // namespace

bool is_loopback(const net::Endpoint& at) {
  if (at.host.empty()) return false;
  auto addresses = net::resolve_now(at.host, at.port);
  return addresses.ok() &&
         std::all_of(addresses.value().begin(), addresses.value().end(),
                     [](const net::Address& address) { return address.is_loopback(); });
}

// The members below `loop` belong to the loop.
struct Shell::Impl {
  using Run = Runs::Run;
  struct Connection {
    std::unique_ptr<net::Stream> stream;
    std::string host;              // numeric; kept, because a reset connection no longer has it
    std::optional<Holder> holder;  // of the token that it has proven; none without a keyring
    protocol::Decoder decoder;
    Run* run = nullptr;  // null while it is pending, and once it is closing
    bool closing = false;
    std::string was_of;  // once it is closing: the name of its run
  };

  Impl(const net::Endpoint& at, const Budgets& of, const protocol::VersionRange& spoken)
      : loopback_only(is_loopback(at)), budgets(of), versions(spoken) {}

  Status open(const net::Endpoint& at, const Remembering& remembering, Tokens given,
              std::vector<uint16_t> shares);
  Status open_keyring(const std::string& path);
  Status open_control(const std::string& path);
  Observing::Callbacks observing_callbacks();
  void answer(const ControlRequest& request, const ControlSocket::Answer& then);
  size_t remove_peers(const std::vector<TokenId>& revoked);
  void close_all();
  std::future<void> drain(const std::string& run);

  // ---- Connections ----
  void accept(net::Socket socket);
  net::Channel channel(net::Socket socket);
  void on_established(ConnectionId id);
  void on_bytes(ConnectionId id, std::span<const std::byte> bytes);
  void refuse_tls(ConnectionId id);
  void on_closed(ConnectionId id, const Status& why);
  void admit(ConnectionId id, const protocol::Message& message);
  void admit_observer(ConnectionId id, const protocol::Watch& watch);
  void dial_back(ConnectionId id, const protocol::DialBack& asked);
  std::optional<protocol::Reject> refuse_by_token(const Connection& connection,
                                                  const std::string& run, Role role) const;
  std::optional<protocol::Reject> refuse_number() const;
  std::optional<protocol::Reject> refuse_unannounced(const std::string& run) const;
  void refuse(ConnectionId id, const std::string& run, const protocol::Reject& reject,
              const char* who = "a peer");
  void warn_closed(ConnectionId id, const std::string& why);
  void send(ConnectionId id, const protocol::Message& message);
  void refuse_bytes(ConnectionId id, const std::string& why);
  void close(ConnectionId id);
  void leave_run(Connection& connection);
  void drop(ConnectionId id);
  void add_pending(ConnectionId id);
  void close_old_pending();
  void hold(ConnectionId id);
  void close_those_who_hold_much();
  Holdings::Party party(const Connection& of) const {
    return of.run == nullptr ? 0 : Runs::id(*of.run);
  }

  void finish_turn();
  bool has_drained(const std::string& run) const;
  // Returns the loop's answer to a question of another thread.
  template <typename Question>
  auto ask(Question question) {
    PCCL_ASSERT(!loop.on_loop());  // it would wait for itself
    std::promise<decltype(question())> answer;
    loop.post([&] { answer.set_value(question()); });
    return answer.get_future().get();
  }

  const bool loopback_only;
  const Budgets budgets;
  const protocol::VersionRange versions;
  uint16_t port = 0;
  net::Loop loop{"pccl-master"};
  std::unique_ptr<Runs> runs;

  bool secured() const { return keyring != nullptr || !shared.empty(); }
  const Keyring& tokens() const { return keyring != nullptr ? keyring->keyring() : shared; }
  std::unique_ptr<KeyringFile> keyring;    // null: there is none
  Keyring shared;                          // without a keyring: the token of all peers, if any
  size_t token_count = 0;                  // at the start
  std::unique_ptr<ControlSocket> control;  // with a journal, and in a process of a peer
  std::unique_ptr<Observing> observing;
  std::unique_ptr<DialBacks> dial_backs;
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<net::Timer> hello_timer;
  std::map<ConnectionId, Connection> connections;
  net::HandshakeRate handshakes;
  RefusalWarnings refusals;
  Arrivals pending;
  Holdings undecoded{budgets.undecoded};
  Holdings unsent{budgets.unsent};  // as of the last send to each connection
  uint64_t connections_made = 0;
  std::optional<std::set<std::string>> announced;  // none: every run is let in
  // Callers that wait for the end of a run, for the permission to exit, and until a run is drained.
  RunWaits<std::function<void()>> awaited_ends;
  RunWaits<std::promise<void>> exits, draining;
  std::vector<std::byte> encoded;               // the last message that was sent
  std::optional<protocol::Message> last_large;  // that message, if it is large
};

Status Shell::Impl::open_keyring(const std::string& path) {
  if (path.empty()) return {};
  auto opened = KeyringFile::open(
      loop, path, [this](const std::vector<TokenId>& revoked) { return remove_peers(revoked); });
  if (!opened.ok()) return opened.status();
  keyring = std::move(opened.value());
  token_count = keyring->count_at_opening();
  return {};
}

Status Shell::Impl::open_control(const std::string& path) {
  PCCL_ASSERT(control == nullptr);
  auto opened = ControlSocket::open(
      loop, path, [this](const ControlRequest& request, const ControlSocket::Answer& then) {
        answer(request, then);
      });
  if (!opened.ok()) return opened.status();
  control = std::move(opened.value());
  return {};
}

// control.h defines requests and answers.
void Shell::Impl::answer(const ControlRequest& request, const ControlSocket::Answer& then) {
  switch (request.command) {
    case Command::kRuns: return then(answer_runs(*runs));
    case Command::kForget: return then(answer_forget(*runs, request.run));
    case Command::kStatus: return then(answer_status(*runs, request.run));
    case Command::kRevoke: return answer_revoke(keyring.get(), request.tokens, then);
  }
}

size_t Shell::Impl::remove_peers(const std::vector<TokenId>& revoked) {
  const std::set<TokenId> tokens(revoked.begin(), revoked.end());
  std::vector<ConnectionId> dropped;  // that belong to no run yet
  for (const auto& [id, connection] : connections) {
    const bool gone = connection.holder && tokens.contains(connection.holder->token);
    if (gone && connection.run == nullptr) dropped.push_back(id);
  }
  for (const ConnectionId id : dropped) drop(id);
  const size_t peers = runs->revoke(tokens);
  finish_turn();
  return peers;
}

Status Shell::Impl::open(const net::Endpoint& at, const Remembering& remembering, Tokens given,
                         std::vector<uint16_t> shares) {
  if (!loop.status().ok()) return loop.status();
  Status status = open_keyring(given.keyring);
  if (!status.ok()) return status;
  if (given.shared) {
    auto& [id, secret] = *given.shared;
    shared.insert_or_assign(id, Token{"this launch", {}, std::move(secret)});
  }
  const Runs::Callbacks callbacks{
      [this](ConnectionId id, const protocol::Message& message) { send(id, message); },
      [this](ConnectionId id) { close(id); }, [this] { finish_turn(); }};
  runs = std::make_unique<Runs>(loop, loopback_only, secured(), remembering.keep_days, versions,
                                callbacks);
  runs->set_shares(std::move(shares));
  status = runs->open(remembering);
  if (!status.ok()) return status;
  std::promise<Status> opened;
  loop.post([&] {
    Status controlled = remembering.path.empty()
                            ? Status()
                            : open_control(ControlSocket::path_of(remembering.path));
    if (!controlled.ok()) return opened.set_value(std::move(controlled));
    observing = std::make_unique<Observing>(loop, observing_callbacks(), observers_max());
    dial_backs = std::make_unique<DialBacks>(loop, [this](ConnectionId id, const auto& result) {
      send(id, result);
      close(id);
    });
    auto made =
        net::Listener::open(loop, at, [this](net::Socket socket) { accept(std::move(socket)); });
    if (!made.ok()) return opened.set_value(made.status());
    listener = std::move(made.value());
    port = listener->port();
    hello_timer = std::make_unique<net::Timer>(loop, [this] { close_old_pending(); });
    opened.set_value({});
  });
  return opened.get_future().get();
}

// The keyring is destroyed before the control socket, because it calls answers of this socket.
void Shell::Impl::close_all() {
  keyring.reset();
  control.reset();
  observing.reset();
  dial_backs.reset();
  listener.reset();
  hello_timer.reset();
  connections.clear();
  runs.reset();
}

// ---- Connections ----

void Shell::Impl::accept(net::Socket socket) {
  const std::string host = socket.peer_host();
  if (pending.full(host) || !handshakes.take(host, monotonic_now())) return;
  const ConnectionId id{++connections_made};
  Connection& connection = connections[id];
  connection.host = host;
  connection.stream = std::make_unique<net::Stream>(
      loop, channel(std::move(socket)),
      net::Stream::Callbacks{
          .on_bytes = [this, id](std::span<const std::byte> bytes) { on_bytes(id, bytes); },
          .on_closed = [this, id](const Status& why) { on_closed(id, why); },
          .on_established = [this, id] { on_established(id); }});
  add_pending(id);
  close_old_pending();
}

// Encrypted, if this master has a keyring.
net::Channel Shell::Impl::channel(net::Socket socket) {
  if (!secured()) return net::Channel(std::move(socket));
  auto find_key = [this](std::string_view shown) { return key_of(std::string(shown), tokens()); };
  net::Channel made(std::move(socket), net::Tls::accept(std::move(find_key)),
                    monotonic_now() + protocol::kHelloTimeout);
  std::vector<std::byte> reject;
  protocol::encode(protocol::Message(needs_token()), reject);
  made.answer_plain_text_with(reject);
  return made;
}

void Shell::Impl::on_established(ConnectionId id) {
  Connection& connection = connections.at(id);
  connection.holder = holder_of(connection.stream->identity(), tokens());
  if (!connection.holder) return drop(id);  // revoked since the handshake began
  add_pending(id);
  close_old_pending();
}

void Shell::Impl::add_pending(ConnectionId id) {
  const Connection& connection = connections.at(id);
  const auto proof = connection.holder ? Arrivals::Proof::kToken : Arrivals::Proof::kNone;
  pending.add(id, connection.host, proof, monotonic_now());
}

// Anybody can open such connections, so they are logged at debug level only.
void Shell::Impl::close_old_pending() {
  const size_t total = net::pending_max(kPendingMax);
  for (const ConnectionId id : pending.take_excess(total, monotonic_now())) {
    log(LogLevel::kDebug, "closed a connection that did not introduce itself");
    drop(id);
  }
  const auto due = pending.deadline();
  due ? hello_timer->arm(*due) : hello_timer->disarm();
}

// Counts the bytes of an incomplete message.
void Shell::Impl::hold(ConnectionId id) {
  const Connection& connection = connections.at(id);
  undecoded.set(id, party(connection), connection.decoder.held());
}

void Shell::Impl::close_those_who_hold_much() {
  while (const auto largest = undecoded.excess()) {
    refuse_bytes(*largest, "it holds " + count_text(undecoded.of(*largest), "byte") +
                               " of a message that is not whole, the most of all, and all together "
                               "hold more than " +
                               count_text(budgets.undecoded, "byte"));
  }
  while (const auto largest = unsent.excess()) {
    // The sizes are as of the last sends, and some bytes have left since: look again.
    std::vector<std::pair<ConnectionId, Holdings::Party>> all;
    unsent.for_each([&](ConnectionId id, Holdings::Party of) { all.emplace_back(id, of); });
    for (const auto& [id, of] : all) unsent.set(id, of, connections.at(id).stream->unsent());
    const auto still = unsent.excess();
    if (!still) return;
    refuse_bytes(*still, "it does not read: " + count_text(unsent.of(*still), "byte") +
                             " wait for it, the most of all, and for all together wait more than " +
                             count_text(budgets.unsent, "byte"));
  }
}

// Warns of the end of a connection that belongs to no run.
void Shell::Impl::warn_closed(ConnectionId id, const std::string& why) {
  log(LogLevel::kWarning, "closed the connection of " + connections.at(id).host + ": " + why);
}

// Closes the connection. Its core, if any, gets Closed, as for any closed connection.
void Shell::Impl::refuse_bytes(ConnectionId id, const std::string& why) {
  Run* run = connections.at(id).run;
  if (run == nullptr) warn_closed(id, why);
  drop(id);
  if (run != nullptr) runs->step(*run, Closed{id, why, true});
}

void Shell::Impl::on_bytes(ConnectionId id, std::span<const std::byte> bytes) {
  Connection& connection = connections.at(id);
  if (connection.closing) return;
  const bool first = connection.run == nullptr && connection.decoder.held() == 0;
  if (first && !secured() && net::Tls::begins(bytes)) return refuse_tls(id);
  connection.decoder.feed(bytes);
  while (!connection.closing) {
    Result<std::optional<protocol::Message>> next = connection.decoder.next();
    if (!next.ok()) {
      Run* run = connection.run;
      if (run == nullptr) warn_closed(id, next.status().message);
      close(id);
      if (run != nullptr) runs->step(*run, Closed{id, next.status().message, true});
      break;
    }
    if (!next.value()) break;
    if (observing->contains(id)) {
      observing->receive(id, *next.value());
    } else if (connection.run == nullptr) {
      admit(id, *next.value());
    } else {
      runs->step(*connection.run, Received{id, std::move(*next.value())});
    }
  }
  hold(id);
  finish_turn();
}

// The peer wants to prove a token, but this master has no keyring.
void Shell::Impl::refuse_tls(ConnectionId id) {
  warn_closed(id, "it wants to prove a token, and this master was started without a keyring");
  connections.at(id).stream->send(net::Tls::plain_text_alert());
  close(id);
  finish_turn();
}

void Shell::Impl::on_closed(ConnectionId id, const Status& why) {
  Run* run = connections.at(id).run;
  if (why.code == Code::kAuthentication) {
    log(LogLevel::kDebug, "closed a connection: " + why.message);
    const Connection& connection = connections.at(id);
    const auto refusal = connection.stream->refusal();
    const auto line = refusals.refused(refusal, connection.host, why.message, monotonic_now());
    if (line) log(LogLevel::kWarning, *line);
  }
  drop(id);
  if (run != nullptr) runs->step(*run, Closed{id, why.message});
  finish_turn();
}

void Shell::Impl::admit(ConnectionId id, const protocol::Message& message) {
  if (dial_backs->contains(id)) return close(id);  // it may only wait for its answer
  Runs::Found found;
  std::string run;  // empty if the version of the message is not known here
  Connection& connection = connections.at(id);
  if (const auto* watch = std::get_if<protocol::Watch>(&message)) return admit_observer(id, *watch);
  if (const auto* asked = std::get_if<protocol::DialBack>(&message)) return dial_back(id, *asked);
  if (const auto* hello = std::get_if<protocol::Hello>(&message)) {
    run = hello->run;
    found.rejected = refuse_versions(hello->versions, hello->library, versions);
    if (found.rejected) runs->turned_away(connection.host, *found.rejected);
    if (!found.rejected) found.rejected = refuse_run(hello->run);
    if (!found.rejected) found.rejected = refuse_by_token(connection, run, Role::kPeer);
    if (!found.rejected) found.rejected = refuse_number();
    if (!found.rejected) found.rejected = refuse_unannounced(run);
    if (!found.rejected) found = runs->admit(*hello, connection.host);
  } else if (const auto* resume = std::get_if<protocol::Resume>(&message)) {
    run = resume->run;
    found.rejected = refuse_versions(resume->versions, "", versions);
    if (!found.rejected) found.rejected = refuse_run(resume->run);
    if (!found.rejected) found.rejected = refuse_by_token(connection, run, Role::kPeer);
    if (!found.rejected) found = runs->find(*resume);
  } else {
    log(LogLevel::kInfo,
        std::string("closed a connection that began with ") + protocol::name(message));
    return close(id);
  }
  if (found.rejected) return refuse(id, run, *found.rejected);
  pending.remove(id);
  connection.run = found.run;
  runs->attach(*found.run,
               {id, connection.host, connection.stream->socket().is_loopback(), connection.holder},
               message);
}

void Shell::Impl::admit_observer(ConnectionId id, const protocol::Watch& watch) {
  Connection& connection = connections.at(id);
  auto rejected = refuse_versions(watch.versions, "", versions);
  if (!rejected) rejected = refuse_run(watch.run);
  if (!rejected) rejected = refuse_by_token(connection, watch.run, Role::kObserver);
  if (!rejected) rejected = observing->add(id, watch.run);
  if (rejected) return refuse(id, watch.run, *rejected, "an observer");
  pending.remove(id);
}

// The connection stays a pending one: all of these together are bounded.
void Shell::Impl::dial_back(ConnectionId id, const protocol::DialBack& asked) {
  auto rejected = refuse_versions(asked.versions, "", versions);
  if (!rejected) rejected = dial_backs->add(id, connections.at(id).host, asked.port);
  if (rejected) refuse(id, {}, *rejected, "a question");
}

Observing::Callbacks Shell::Impl::observing_callbacks() {
  return {
      .snapshot_of = [this](const std::string& run) { return observe(*runs, run); },
      .send = [this](ConnectionId id, const protocol::Message& message) { send(id, message); },
      .refuse = [this](ConnectionId id, const std::string& run,
                       const protocol::Reject& reject) { refuse(id, run, reject, "an observer"); },
      .unsent = [this](ConnectionId id) { return connections.at(id).stream->unsent(); },
      .close =
          [this](ConnectionId id, const std::string& why) {
            log(LogLevel::kInfo,
                "closed the connection of an observer at " + connections.at(id).host + ": " + why);
            close(id);
          },
  };
}

std::optional<protocol::Reject> Shell::Impl::refuse_by_token(const Connection& connection,
                                                             const std::string& run,
                                                             Role role) const {
  if (!connection.holder) return std::nullopt;
  std::optional<size_t> count;
  if (keyring != nullptr) {
    count = std::count_if(connections.begin(), connections.end(), [&](const auto& other) {
      return other.second.holder && other.second.holder->token == connection.holder->token;
    });
  }
  return refuse_token(*connection.holder, tokens(), run, role, count);
}

std::optional<protocol::Reject> Shell::Impl::refuse_number() const {
  const size_t admitted = connections.size() - pending.size() - observing->size();
  if (admitted < connections_max()) return std::nullopt;
  return protocol::Reject{Code::kInvalidState,
                          "this master has " + count_text(admitted, "peer") +
                              " connected, the most for which its limit "
                              "of " +
                              std::to_string(net::descriptors_max()) +
                              " open files leaves room: start it with a higher one (ulimit -n), or "
                              "start another master"};
}

std::optional<protocol::Reject> Shell::Impl::refuse_unannounced(const std::string& run) const {
  if (!announced || announced->contains(run)) return std::nullopt;
  return protocol::Reject{Code::kMasterLost,
                          "run \"" + run + "\" has ended: its rank 0, which hosted it, has left"};
}

void Shell::Impl::refuse(ConnectionId id, const std::string& run, const protocol::Reject& reject,
                         const char* who) {
  const std::string about = run.empty() ? "" : "run \"" + run + "\": ";
  log(LogLevel::kInfo,
      about + "refused " + who + " at " + connections.at(id).host + ": " + reject.text);
  send(id, reject);
  close(id);
}

// The members of a group often get the same message, one after another. A large message, such as
// the list of a large shared state, takes long to encode, so it is encoded once for all of them.
void Shell::Impl::send(ConnectionId id, const protocol::Message& message) {
  if (last_large != message) {
    encoded.clear();
    protocol::encode(message, encoded);
    last_large.reset();
    if (encoded.size() >= kEncodedOnceBytes) last_large = message;
  }
  const Connection& connection = connections.at(id);
  connection.stream->send(encoded);  // sent at the end of this turn, with the others
  unsent.set(id, party(connection), connection.stream->unsent());
}

// Closes the connection after all sent messages have left. No callback follows.
void Shell::Impl::close(ConnectionId id) {
  Connection& connection = connections.at(id);
  leave_run(connection);
  observing->forget(id);
  dial_backs->forget(id);
  connection.closing = true;
  connection.decoder = {};
  undecoded.forget(id);
  connection.stream->close_after_flush();
  add_pending(id);
}

void Shell::Impl::leave_run(Connection& connection) {
  Run* run = std::exchange(connection.run, nullptr);
  if (run == nullptr) return;
  connection.was_of = Runs::name(*run);
  runs->detach(*run);
}

// Closes at once, without sending the rest.
void Shell::Impl::drop(ConnectionId id) {
  leave_run(connections.at(id));
  observing->forget(id);
  dial_backs->forget(id);
  pending.remove(id);
  connections.erase(id);
  undecoded.forget(id);
  unsent.forget(id);
}

void Shell::Impl::finish_turn() {
  close_those_who_hold_much();
  runs->finish_turn();
  const auto release = [](const std::string&, std::promise<void>& wait) { wait.set_value(); };
  exits.end([this](const std::string& run) { return runs->may_exit(run); }, release);
  awaited_ends.end([this](const std::string& run) { return !runs->lives(run); },
                   [this](const std::string& run, const std::function<void()>& then) {
                     if (announced) announced->erase(run);
                     then();
                   });
  draining.end(
      [this](const std::string& run) {
        runs->drain(run);
        return has_drained(run);
      },
      release);
}

// ---- The end ----

bool Shell::Impl::has_drained(const std::string& run) const {
  return runs->settled(run) &&
         std::none_of(connections.begin(), connections.end(), [&run](const auto& at) {
           return at.second.closing && at.second.was_of == run;
         });
}

std::future<void> Shell::Impl::drain(const std::string& run) {
  auto drained = std::make_shared<std::promise<void>>();
  std::future<void> done = drained->get_future();
  loop.post([this, run, drained] {
    if (announced) announced->erase(run);
    draining.add(run, std::move(*drained));
    finish_turn();
  });
  return done;
}

Result<std::unique_ptr<Shell>> Shell::open(const net::Endpoint& at, const Remembering& remembering,
                                           const Budgets& budgets,
                                           const protocol::VersionRange& versions, Tokens tokens,
                                           std::vector<uint16_t> shares) {
  std::unique_ptr<Shell> shell(new Shell());
  shell->impl_ = std::make_unique<Impl>(at, budgets, versions);
  const Status status = shell->impl_->open(at, remembering, std::move(tokens), std::move(shares));
  if (!status.ok()) return status;
  return shell;
}

Shell::Shell() = default;

Shell::~Shell() {
  impl_->loop.post([impl = impl_.get()] { impl->close_all(); });
  impl_->loop.stop();
}

uint16_t Shell::port() const { return impl_->port; }

const std::vector<std::string>& Shell::remembered() const { return impl_->runs->remembered(); }

size_t Shell::token_count() const { return impl_->token_count; }

Status Shell::open_control(const std::string& path) {
  return impl_->ask([&] { return impl_->open_control(path); });
}

void Shell::announce(const std::string& run) {
  impl_->loop.post([impl = impl_.get(), run] {
    if (!impl->announced) impl->announced.emplace();
    impl->announced->insert(run);
    impl->runs->set_fixed_worlds();
  });
}

void Shell::when_over(const std::string& run, std::function<void()> then) {
  impl_->loop.post([impl = impl_.get(), run, then = std::move(then)] {
    impl->awaited_ends.add(run, then);
    impl->finish_turn();
  });
}

bool Shell::lives(const std::string& run) const {
  return impl_->ask([&] { return impl_->runs->lives(run); });
}

std::string Shell::awaited_peers(const std::string& run) const {
  return impl_->ask([&] { return impl_->runs->awaited_peers(run); });
}

std::future<void> Shell::host_exits(const std::string& run, Duration patience) {
  auto may = std::make_shared<std::promise<void>>();
  std::future<void> done = may->get_future();
  impl_->loop.post([impl = impl_.get(), run, patience, may] {
    impl->exits.add(run, std::move(*may));
    impl->runs->host_exits(run, patience);
    impl->finish_turn();
  });
  return done;
}

void Shell::start_draining(const std::string& run) { static_cast<void>(impl_->drain(run)); }

void Shell::drain(const std::string& run, Duration at_most) { impl_->drain(run).wait_for(at_most); }

}  // namespace pccl::master
