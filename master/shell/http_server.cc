// Normal case: a connection is accepted, sends the head of a request, gets an answer and closes. A
// request for a snapshot waits in the Observing for its answer. A stream asks there again with each
// beat.
// Failures:
// - There are too many connections, or too few descriptors for the peers: some are closed.
// - A request is wrong, or its sender may not have the answer: it gets a refusal (http/router.h).
// - A visitor is too slow, disconnects, or a token is revoked: its connection is closed.
#include "master/shell/http_server.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/net/address.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/network_warnings.h"
#include "csrc/net/socket.h"
#include "csrc/net/stream.h"
#include "csrc/protocol/limits.h"
#include "master/http/page.h"
#include "master/http/page_policy.h"
#include "master/http/request.h"
#include "master/http/response.h"
#include "master/http/router.h"
#include "master/operator/control.h"
#include "master/shell/loopback.h"
#include "master/shell/observing.h"
#include "master/shell/socket_file.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

using nlohmann::json;

constexpr SocketFile::Use kHttpSocket = {
    .name = "the socket of --http",
    .move_advice = "move it away, or name another path",
    .other_advice = "name another path, for example in a folder of your own",
    .queue = HttpServer::kOthersMax,
};

enum class Phase : uint8_t {
  kReads,    // its request is not complete
  kAsks,     // it waits for a snapshot, which is its answer
  kStreams,  // it gets a snapshot with each beat
  kCloses,   // its answer is on the way
};

}  // namespace

struct HttpServer::Impl {
  struct Connection {
    std::unique_ptr<net::Stream> stream;
    std::unique_ptr<net::Timer> timeout;  // kReads only
    std::string host = {};                // numeric; of the other end
    Phase phase = Phase::kReads;
    http::RequestParser parser = {};
    std::optional<Holder> holder = {};
    std::string run = {};     // kAsks and kStreams
    std::string answer = {};  // kAsks: the parts of the snapshot that are here
    // kStreams: whether the head of the answer has left; whether a part of a snapshot is missing;
    // whether it has been answered since it has asked.
    bool begun = false, amid = false, answered = false;
  };
  // A text that is made at most once in kBeat.
  struct Made {
    std::string text;
    std::optional<Instant> at;
    bool is_fresh(Instant now) const { return at && now < *at + kBeat; }
  };

  Impl(net::Loop& on, http::Place where, std::string behind, Callbacks to);

  Status open();
  void accept(net::Socket socket);
  void make_room();
  void on_bytes(ConnectionId id, std::span<const std::byte> bytes);
  void serve(ConnectionId id, const http::Request& request);
  void serve(ConnectionId id, const http::Route& route);
  void observe(ConnectionId id, const http::Route& route);
  Observing::Callbacks observing_callbacks();
  void on_part(ConnectionId id, const protocol::Message& message);
  void on_refused(ConnectionId id, const protocol::Reject& reject);
  void beat();
  std::string runs_for(const std::optional<Holder>& holder);
  const std::string& metrics();
  void warn_of_password(const std::string& host);
  void finish(ConnectionId id, const std::string& answer);
  void drop(ConnectionId id);
  const Keyring* keyring() const { return place.socket.empty() ? callbacks.keyring() : nullptr; }
  size_t stream_count() const;

  net::Loop& loop;
  const http::Place place;
  const std::string proxy;
  const Callbacks callbacks;
  const std::string policy = http::policy_of(http::page());
  std::string url;
  std::optional<SocketFile> file;  // of a Unix socket
  std::unique_ptr<net::Listener> listener;
  std::map<ConnectionId, Connection> connections;
  uint64_t connections_made = 0;
  Observing observing;
  net::Timer beat_timer;
  bool beating = false;
  json runs;  // of the time of `runs_text`
  Made runs_text, metrics_text;
  net::NetworkWarnings warnings;
};

HttpServer::Impl::Impl(net::Loop& on, http::Place where, std::string behind, Callbacks to)
    : loop(on),
      place(std::move(where)),
      proxy(std::move(behind)),
      callbacks(std::move(to)),
      observing(on, observing_callbacks(), protocol::kObserversMax),
      beat_timer(on, [this] { beat(); }) {}

Status HttpServer::Impl::open() {
  const auto accepted = [this](net::Socket socket) { accept(std::move(socket)); };
  if (place.socket.empty()) {
    auto made = net::Listener::open(loop, place.at, accepted);
    if (!made.ok()) return {made.status().code, "--http: " + made.status().message, {}};
    listener = std::move(made.value());
    url = "http://" + text(Endpoint{place.at.host, listener->port()}) + "/";
    return {};
  }
  if (has_listener(place.socket)) {
    return {Code::kSystem,
            "--http: another process listens at " + place.socket + ": end it, or name another path",
            {}};
  }
  auto made = SocketFile::open(place.socket, kHttpSocket);
  if (!made.ok()) return made.status();
  file.emplace(std::move(made.value()));
  listener = std::make_unique<net::Listener>(loop, file->take_socket(), accepted);
  url = "unix:" + place.socket;
  return {};
}

// ---- Connections ----

void HttpServer::Impl::accept(net::Socket socket) {
  loop.assert_on_loop();
  // An eighth of all descriptors stays for members that resume, as in descriptor_shares.h.
  if (net::is_scarce(socket.fd(), net::descriptors_max() / 8)) return;
  if (file && !SocketFile::is_trusted(socket)) return;
  // The system must not keep the answer of a visitor that is closed because it does not read.
  socket.discard_at_end();
  make_room();
  const ConnectionId id{++connections_made};
  Connection& connection = connections[id];
  connection.host = socket.peer_host();
  connection.stream = std::make_unique<net::Stream>(
      loop, std::move(socket),
      net::Stream::Callbacks{
          .on_bytes = [this, id](std::span<const std::byte> bytes) { on_bytes(id, bytes); },
          .on_closed = [this, id](const Status&) { drop(id); }});
  connection.timeout = std::make_unique<net::Timer>(loop, [this, id] { drop(id); });
  connection.timeout->arm(monotonic_now() + kTimeout);
}

size_t HttpServer::Impl::stream_count() const {
  return static_cast<size_t>(
      std::count_if(connections.begin(), connections.end(),
                    [](const auto& one) { return one.second.phase == Phase::kStreams; }));
}

void HttpServer::Impl::make_room() {
  while (connections.size() - stream_count() >= kOthersMax) {
    const auto oldest = std::find_if(connections.begin(), connections.end(), [](const auto& one) {
      return one.second.phase != Phase::kStreams;
    });
    drop(oldest->first);
  }
}

void HttpServer::Impl::on_bytes(ConnectionId id, std::span<const std::byte> bytes) {
  Connection& connection = connections.at(id);
  // Nothing may follow a request. Otherwise the visitor of a stream could keep the loop busy.
  if (connection.phase != Phase::kReads) return drop(id);
  const auto parsed =
      connection.parser.feed({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!parsed) return;
  connection.timeout.reset();
  if (const auto* refusal = std::get_if<http::Refusal>(&*parsed))
    return finish(id, http::response(*refusal));
  serve(id, std::get<http::Request>(*parsed));
}

void HttpServer::Impl::finish(ConnectionId id, const std::string& answer) {
  Connection& connection = connections.at(id);
  observing.forget(id);
  connection.phase = Phase::kCloses;
  connection.stream->send(std::as_bytes(std::span(answer)));
  connection.stream->close_after_flush(kTimeout);
}

void HttpServer::Impl::drop(ConnectionId id) {
  observing.forget(id);
  connections.erase(id);
}

// ---- Answers ----

void HttpServer::Impl::serve(ConnectionId id, const http::Request& request) {
  const auto found = http::route(request, {place.at.host, proxy, keyring()});
  if (const auto* refusal = std::get_if<http::Refusal>(&found)) {
    if (refusal->status == 401 && !request.authorization.empty())
      warn_of_password(connections.at(id).host);
    return finish(id, http::response(*refusal));
  }
  serve(id, std::get<http::Route>(found));
}

void HttpServer::Impl::serve(ConnectionId id, const http::Route& route) {
  using Kind = http::Route::Kind;
  switch (route.kind) {
    case Kind::kPage: return finish(id, http::response(200, http::kHtml, http::page(), policy));
    case Kind::kRuns: return finish(id, http::response(200, http::kJson, runs_for(route.holder)));
    case Kind::kRun:
    case Kind::kEvents: return observe(id, route);
    case Kind::kMetrics:
      return finish(id, callbacks.metrics ? http::response(200, http::kMetricsText, metrics())
                                          : http::response({404, "this master has no metrics"}));
    case Kind::kHealth:
      return finish(id, callbacks.is_healthy()
                            ? http::response(200, http::kJson, "{\"healthy\":true}\n")
                            : http::response({503, "the journal cannot be written"}));
  }
}

void HttpServer::Impl::observe(ConnectionId id, const http::Route& route) {
  const bool is_stream = route.kind == http::Route::Kind::kEvents;
  if (is_stream && stream_count() >= kStreamsMax) {
    return finish(id, http::response({503, "this master has " + count_text(kStreamsMax, "stream") +
                                               ", the most that it serves at the same time"}));
  }
  if (const auto rejected = observing.add(id, route.run))
    return finish(id, http::response({503, rejected->text}));
  Connection& connection = connections.at(id);
  connection.phase = is_stream ? Phase::kStreams : Phase::kAsks;
  connection.holder = route.holder;
  connection.run = route.run;
  if (is_stream && !std::exchange(beating, true)) beat_timer.arm(monotonic_now() + kBeat);
}

Observing::Callbacks HttpServer::Impl::observing_callbacks() {
  return {
      .snapshot_of = [this](const std::string& run) { return callbacks.snapshot_of(run); },
      .send = [this](ConnectionId id, const protocol::Message& part) { on_part(id, part); },
      .refuse = [this](ConnectionId id, const std::string&,
                       const protocol::Reject& reject) { on_refused(id, reject); },
      .unsent = [this](ConnectionId id) { return connections.at(id).stream->unsent(); },
      .close =
          [this](ConnectionId id, const std::string& why) {
            log(LogLevel::kInfo, "closed a connection of a browser: " + why);
            drop(id);
          },
  };
}

// The text of a snapshot is one line, with its end.
void HttpServer::Impl::on_part(ConnectionId id, const protocol::Message& message) {
  const auto& [part, last] = std::get<protocol::Snapshot>(message);
  Connection& connection = connections.at(id);
  if (connection.phase == Phase::kAsks) {
    connection.answer += part;
    if (last) finish(id, http::response(200, http::kJson, connection.answer));
    return;
  }
  std::string bytes = std::exchange(connection.begun, true) ? "" : http::begin_events();
  if (!std::exchange(connection.amid, !last)) bytes += http::begin_event("snapshot");
  bytes += part;
  if (last) bytes += '\n';
  connection.answered = last;
  connection.stream->send(std::as_bytes(std::span(bytes)));
}

void HttpServer::Impl::on_refused(ConnectionId id, const protocol::Reject& reject) {
  if (!connections.at(id).begun) return finish(id, http::response({404, reject.text}));
  finish(id, http::begin_event("gone") + answer_line(error_answer(reject.text)) + '\n');
}

// All streams ask at the same time, so that the streams of a run share a snapshot. A stream with an
// unread snapshot does not ask; Observers drops it in the end.
void HttpServer::Impl::beat() {
  std::vector<ConnectionId> asking;
  for (const auto& [id, connection] : connections) {
    const bool asks = connection.phase == Phase::kStreams && connection.answered;
    if (asks && connection.stream->unsent() == 0) asking.push_back(id);
  }
  for (const ConnectionId id : asking) {
    Connection& connection = connections.at(id);
    connection.answered = false;
    observing.receive(id, protocol::Watch{.run = connection.run});
  }
  beating = stream_count() > 0;
  if (beating) beat_timer.arm(monotonic_now() + kBeat);
}

std::string HttpServer::Impl::runs_for(const std::optional<Holder>& holder) {
  const Instant now = monotonic_now();
  if (!runs_text.is_fresh(now)) {
    runs = callbacks.runs();
    runs_text = {answer_line(runs), now};
  }
  if (!holder || keyring()->at(holder->token).runs.empty()) return runs_text.text;
  json seen = json::array();
  for (const json& run : runs.at("runs")) {
    if (http::may_see(holder, keyring(), run.at("run"))) seen.push_back(run);
  }
  return answer_line({{"runs", std::move(seen)}});
}

const std::string& HttpServer::Impl::metrics() {
  const Instant now = monotonic_now();
  if (!metrics_text.is_fresh(now)) metrics_text = {callbacks.metrics(), now};
  return metrics_text.text;
}

void HttpServer::Impl::warn_of_password(const std::string& host) {
  const std::string network = net::network_of(host);
  if (const uint64_t count = warnings.count(network, monotonic_now()); count > 0) {
    log(LogLevel::kWarning, "refused " + count_text(count, "request") + " from " + network +
                                " for the pages of --http: wrong user or password");
  }
}

// ---- The outside ----

Status HttpServer::refuse(const http::Place& place, const std::string& proxy) {
  if (!place.socket.empty() || !proxy.empty() || is_loopback(place.at)) return {};
  return {Code::kInvalidArgument,
          "--http is " + text(place.at) +
              ", which other machines may reach, and browsers do not speak the encryption of pccl: "
              "give the port alone and reach it by `ssh -L`, or put a proxy with TLS in front and "
              "name its host with --http-behind-proxy",
          {}};
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(net::Loop& loop, const http::Place& place,
                                                     const std::string& proxy,
                                                     Callbacks callbacks) {
  loop.assert_on_loop();
  Status status = refuse(place, proxy);
  if (!status.ok()) return status;
  std::unique_ptr<HttpServer> server(new HttpServer());
  server->impl_ = std::make_unique<Impl>(loop, place, proxy, std::move(callbacks));
  status = server->impl_->open();
  if (!status.ok()) return status;
  return server;
}

HttpServer::HttpServer() = default;
HttpServer::~HttpServer() = default;

const std::string& HttpServer::url() const { return impl_->url; }

void HttpServer::revoke(const std::set<TokenId>& tokens) {
  std::vector<ConnectionId> gone;
  for (const auto& [id, connection] : impl_->connections) {
    if (connection.holder && tokens.contains(connection.holder->token)) gone.push_back(id);
  }
  for (const ConnectionId id : gone) impl_->drop(id);
}

}  // namespace pccl::master
