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
#include "master/shell/descriptor_shares.h"
#include "master/shell/dial_backs.h"
#include "master/shell/loopback.h"
#include "master/shell/meetings.h"
#include "master/shell/message_encoder.h"
#include "master/shell/observing.h"
#include "master/shell/proofs.h"
#include "master/shell/refusal_warnings.h"
#include "master/shell/run_answers.h"
#include "master/shell/run_waits.h"
#include "master/shell/runs.h"
#include "master/shell/surfaces.h"
#include "master/text_format.h"

namespace pccl::master {

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
  Status open_proofs(Tokens given);
  Observing::Callbacks observing_callbacks();
  Meetings::Callbacks meeting_callbacks();
  size_t remove_peers(const std::vector<TokenId>& revoked);
  void close_all();
  std::future<void> drain(const std::string& run);

  // ---- Connections ----
  void accept(net::Socket socket);
  void on_established(ConnectionId id);
  void on_bytes(ConnectionId id, std::span<const std::byte> bytes);
  void refuse_tls(ConnectionId id);
  void on_closed(ConnectionId id, const Status& why);
  void admit(ConnectionId id, const protocol::Message& message);
  void offer(ConnectionId id, const protocol::Regroup& message);
  void enter(ConnectionId id, const std::string& run, const Runs::Found& found,
             const protocol::Message& first);
  void admit_observer(ConnectionId id, const protocol::Watch& watch);
  void dial_back(ConnectionId id, const protocol::DialBack& asked);
  std::optional<protocol::Reject> refuse_by_token(const Connection& connection,
                                                  const std::string& run, Role role) const;
  static std::optional<protocol::Reject> refuse_handle(const Connection& connection,
                                                       const protocol::Rendezvous& seen);
  std::optional<protocol::Reject> refuse_number() const;
  std::optional<protocol::Reject> refuse_unannounced(const std::string& run) const;
  void refuse(ConnectionId id, const std::string& run, const protocol::Reject& reject,
              const char* who = "a peer");
  void warn_closed(ConnectionId id, const std::string& why);
  void send(ConnectionId id, const protocol::Message& message);
  void refuse_bytes(ConnectionId id, const std::string& why);
  void close(ConnectionId id);
  void leave_run(Connection& connection);
  void forget(ConnectionId id);
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

  std::unique_ptr<Proofs> proofs;
  size_t token_count = 0;  // at the start
  std::unique_ptr<Surfaces> surfaces;
  std::unique_ptr<Observing> observing;
  std::unique_ptr<DialBacks> dial_backs;
  std::unique_ptr<Meetings> meetings;
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
  MessageEncoder encoder;
};

Status Shell::Impl::open_proofs(Tokens given) {
  proofs = std::make_unique<Proofs>(std::move(given.shared), given.handles);
  if (given.keyring.empty()) return {};
  Status status = proofs->open_keyring(
      loop, given.keyring,
      [this](const std::vector<TokenId>& revoked) { return remove_peers(revoked); });
  if (status.ok()) token_count = proofs->keyring()->count_at_opening();
  return status;
}

size_t Shell::Impl::remove_peers(const std::vector<TokenId>& revoked) {
  const std::set<TokenId> tokens(revoked.begin(), revoked.end());
  std::vector<ConnectionId> dropped;  // that belong to no run yet
  for (const auto& [id, connection] : connections) {
    const bool gone = connection.holder && tokens.contains(connection.holder->token);
    if (gone && connection.run == nullptr) dropped.push_back(id);
  }
  for (const ConnectionId id : dropped) drop(id);
  if (surfaces != nullptr) surfaces->revoke(tokens);
  const size_t peers = runs->revoke(tokens);
  finish_turn();
  return peers;
}

Status Shell::Impl::open(const net::Endpoint& at, const Remembering& remembering, Tokens given,
                         std::vector<uint16_t> shares) {
  if (!loop.status().ok()) return loop.status();
  Status status = open_proofs(std::move(given));
  if (!status.ok()) return status;
  const Runs::Callbacks callbacks{
      [this](ConnectionId id, const protocol::Message& message) { send(id, message); },
      [this](ConnectionId id) { close(id); }, [this] { finish_turn(); },
      [this](const std::string& run) {
        if (meetings != nullptr) meetings->begun(run);
      },
      [this](const std::string& run, bool begun) { meetings->regrouped(run, begun); }};
  runs = std::make_unique<Runs>(loop, loopback_only, proofs->secured(), remembering.keep_days,
                                versions, callbacks);
  runs->set_shares(std::move(shares));
  status = runs->open(remembering);
  if (!status.ok()) return status;
  std::promise<Status> opened;
  loop.post([&] {
    surfaces = std::make_unique<Surfaces>(loop, *runs, *proofs);
    Status controlled = remembering.path.empty()
                            ? Status()
                            : surfaces->open_control(ControlSocket::path_of(remembering.path));
    if (!controlled.ok()) return opened.set_value(std::move(controlled));
    observing =
        std::make_unique<Observing>(loop, observing_callbacks(), DescriptorShares::observers_max());
    dial_backs = std::make_unique<DialBacks>(loop, [this](ConnectionId id, const auto& result) {
      send(id, result);
      close(id);
    });
    meetings = std::make_unique<Meetings>(loop, meeting_callbacks());
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

void Shell::Impl::close_all() {
  proofs->close_keyring();  // before the surfaces, whose answers it calls
  surfaces.reset();
  observing.reset();
  dial_backs.reset();
  meetings.reset();
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
      loop, proofs->accept(std::move(socket)),
      net::Stream::Callbacks{
          .on_bytes = [this, id](std::span<const std::byte> bytes) { on_bytes(id, bytes); },
          .on_closed = [this, id](const Status& why) { on_closed(id, why); },
          .on_established = [this, id] { on_established(id); }});
  add_pending(id);
  close_old_pending();
}

void Shell::Impl::on_established(ConnectionId id) {
  Connection& connection = connections.at(id);
  connection.holder = proofs->holder_of(connection.stream->identity());
  if (!connection.holder) return drop(id);  // revoked since the handshake began
  add_pending(id);
  close_old_pending();
}

void Shell::Impl::add_pending(ConnectionId id) {
  const Connection& connection = connections.at(id);
  const bool known = connection.holder && !Proofs::has_handle(*connection.holder);
  const auto proof = known ? Arrivals::Proof::kToken : Arrivals::Proof::kNone;
  pending.add(id, connection.host, proof, monotonic_now());
}

// Anybody can open such connections, so they are logged at debug level only.
void Shell::Impl::close_old_pending() {
  const size_t total = net::pending_max(DescriptorShares::kPendingMax);
  for (const ConnectionId id : pending.take_excess(total, monotonic_now())) {
    log(LogLevel::kDebug, "closed a connection that did not introduce itself");
    drop(id);
  }
  const auto due = pending.deadline();
  due ? hello_timer->arm(*due) : hello_timer->disarm();
}

// Counts the bytes of an incomplete message.
void Shell::Impl::hold(ConnectionId id) {
  undecoded.set(id, party(connections.at(id)), connections.at(id).decoder.held());
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

void Shell::Impl::warn_closed(ConnectionId id, const std::string& why) {
  log(LogLevel::kWarning, LogEvent::kConnectionClosed,
      "closed the connection of " + connections.at(id).host + ": " + why);
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
  if (first && !proofs->secured() && net::Tls::begins(bytes)) return refuse_tls(id);
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
    } else if (meetings->waits(id)) {
      meetings->receive(id, std::move(*next.value()));
    } else if (connection.run == nullptr) {
      admit(id, *next.value());
    } else if (const auto* regroup = std::get_if<protocol::Regroup>(&*next.value())) {
      offer(id, *regroup);
    } else {
      runs->step(*connection.run, Received{id, std::move(*next.value())});
    }
  }
  hold(id);
  finish_turn();
}

void Shell::Impl::offer(ConnectionId id, const protocol::Regroup& message) {
  Run& run = *connections.at(id).run;
  const auto rank = Runs::rank_of(run, id);
  Status status{Code::kProtocol, "Regroup of a peer that is no member", {}};
  if (rank) status = meetings->offer(id, Runs::name(run), *rank, message);
  if (status.ok()) return;
  close(id);
  runs->step(run, Closed{id, status.message, true});
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
    if (line) log(LogLevel::kWarning, LogEvent::kRefused, *line);
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
    if (!found.rejected && hello->rendezvous) {
      const Status bad = protocol::check(hello->settings);
      if (!bad.ok()) return refuse(id, run, {bad.code, bad.message});
      const auto forged = refuse_handle(connection, *hello->rendezvous);
      if (forged) return refuse(id, run, *forged);
      pending.remove(id);
      return meetings->arrive(id, *hello);
    }
    if (!found.rejected) found.rejected = refuse_unannounced(run);
    if (!found.rejected) found = runs->admit(*hello, connection.host);
  } else if (const auto* resume = std::get_if<protocol::Resume>(&message)) {
    run = resume->run;
    found.rejected = refuse_versions(resume->versions, "", versions);
    if (!found.rejected) found.rejected = refuse_run(resume->run);
    if (!found.rejected) found.rejected = refuse_by_token(connection, run, Role::kPeer);
    if (!found.rejected) found = runs->find(*resume);
  } else {
    log(LogLevel::kInfo, LogEvent::kConnectionClosed,
        std::string("closed a connection that began with ") + protocol::name(message));
    return close(id);
  }
  enter(id, run, found, message);
}

void Shell::Impl::enter(ConnectionId id, const std::string& run, const Runs::Found& found,
                        const protocol::Message& first) {
  if (found.rejected) return refuse(id, run, *found.rejected);
  pending.remove(id);
  Connection& connection = connections.at(id);
  connection.run = found.run;
  runs->attach(*found.run,
               {id, connection.host, connection.stream->socket().is_loopback(), connection.holder},
               first);
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
  const auto& holder = connections.at(id).holder;
  if (holder && Proofs::has_handle(*holder)) return close(id);
  auto rejected = refuse_versions(asked.versions, "", versions);
  if (!rejected) rejected = dial_backs->add(id, connections.at(id).host, asked.port);
  if (rejected) refuse(id, {}, *rejected, "a question");
}

// Whether the peer has made the handle that it claims as its own.
std::optional<protocol::Reject> Shell::Impl::refuse_handle(const Connection& connection,
                                                           const protocol::Rendezvous& seen) {
  const uint32_t own = seen.invites ? 0 : seen.rank;
  if (own >= seen.handles.size()) return std::nullopt;  // refused by the rendezvous
  return Proofs::refuse_handle(connection.stream->identity(), seen.handles[own]);
}

Meetings::Callbacks Shell::Impl::meeting_callbacks() {
  return {
      .add_key = [this](const auto& key) { proofs->add(key); },
      .send = [this](ConnectionId id, const protocol::Message& message) { send(id, message); },
      .admit =
          [this](ConnectionId id, const protocol::Hello& hello) {
            enter(id, hello.run, runs->admit(hello, connections.at(id).host), hello);
          },
      .receive =
          [this](ConnectionId id, const protocol::Message& message) {
            Run* const run = connections.at(id).run;  // null if it was refused
            if (run != nullptr) runs->step(*run, Received{id, message});
          },
      .refuse = [this](ConnectionId id, const std::string& run,
                       const protocol::Reject& why) { refuse(id, run, why); },
      .end =
          [this](const std::string& run, const protocol::Reject& reject) {
            for (const auto& [id, connection] : connections)
              if (connection.run != nullptr && Runs::name(*connection.run) == run) send(id, reject);
            runs->end(run, reject.text);
          },
      .regroup = [this](const std::string& run,
                        const RegroupAgreed& agreed) { runs->regroup(run, agreed); },
      .dial = [this](net::Socket socket, const protocol::ReconfigureHandle& to,
                     const net::HandleKey* own,
                     Instant by) { return proofs->dial(std::move(socket), to, own, by); },
      .on_stepped = [this] { finish_turn(); },
  };
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
            log(LogLevel::kInfo, LogEvent::kConnectionClosed,
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
  if (proofs->keyring() != nullptr) {
    count = std::count_if(connections.begin(), connections.end(), [&](const auto& other) {
      return other.second.holder && other.second.holder->token == connection.holder->token;
    });
  }
  return proofs->refuse(*connection.holder, run, role, count);
}

std::optional<protocol::Reject> Shell::Impl::refuse_number() const {
  return DescriptorShares::refuse_one_more(connections.size() - pending.size() - observing->size());
}

std::optional<protocol::Reject> Shell::Impl::refuse_unannounced(const std::string& run) const {
  if (!announced || announced->contains(run)) return std::nullopt;
  return protocol::Reject{Code::kMasterLost,
                          "run \"" + run + "\" has ended: its rank 0, which hosted it, has left"};
}

void Shell::Impl::refuse(ConnectionId id, const std::string& run, const protocol::Reject& reject,
                         const char* who) {
  log_about({run}, LogLevel::kInfo, LogEvent::kRefused,
            std::string("refused ") + who + " at " + connections.at(id).host + ": " + reject.text);
  send(id, reject);
  close(id);
}

void Shell::Impl::send(ConnectionId id, const protocol::Message& message) {
  const Connection& connection = connections.at(id);
  connection.stream->send(
      encoder.bytes_of(message));  // sent at the end of this turn, with the others
  unsent.set(id, party(connection), connection.stream->unsent());
}

// Closes the connection after all sent messages have left. No callback follows.
void Shell::Impl::close(ConnectionId id) {
  Connection& connection = connections.at(id);
  leave_run(connection);
  forget(id);
  connection.closing = true;
  connection.decoder = {};
  undecoded.forget(id);
  connection.stream->close_after_flush();
  add_pending(id);
}

void Shell::Impl::forget(ConnectionId id) {
  observing->forget(id);
  dial_backs->forget(id);
  meetings->closed(id);
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
  forget(id);
  pending.remove(id);
  connections.erase(id);
  undecoded.forget(id);
  unsent.forget(id);
}

void Shell::Impl::finish_turn() {
  close_those_who_hold_much();
  if (meetings != nullptr) meetings->finish_turn();  // null until this master listens
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
  return impl_->ask([&] { return impl_->surfaces->open_control(path); });
}

Result<std::string> Shell::open_http(const http::Place& place, const std::string& proxy) {
  return impl_->ask([&] { return impl_->surfaces->open_http(place, proxy); });
}

void Shell::notify(Notifier::Options to) {
  impl_->loop.post([runs = impl_->runs.get(), to = std::move(to)] { runs->notify(to); });
}

void Shell::announce(const std::string& run) {
  impl_->loop.post([impl = impl_.get(), run] {
    if (!impl->announced) impl->announced.emplace();
    impl->announced->insert(run);
    impl->runs->set_fixed_worlds();
  });
}

void Shell::with_meetings(const std::function<void(Meetings&)>& what) {
  impl_->ask([&] {
    if (!impl_->announced) impl_->announced.emplace();
    impl_->runs->set_fixed_worlds();
    what(*impl_->meetings);
    impl_->finish_turn();
    return true;
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

void Shell::start_draining(const std::string& run) {
  impl_->drain(run);
  impl_->ask([] { return true; });  // the loop has begun it
}

void Shell::drain(const std::string& run, Duration at_most) { impl_->drain(run).wait_for(at_most); }

}  // namespace pccl::master
