#include "master/shell/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "csrc/protocol/limits.h"
#include "tests/cpp/master/asker.h"
#include "tests/cpp/master/harness.h"
#include "tests/cpp/master/keyring_lines.h"
#include "tests/cpp/master/logins.h"
#include "tests/cpp/master/visitor.h"
#include "tests/cpp/net/net_test.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

std::string header(const std::string& login) { return "Authorization: " + login + "\r\n"; }

struct HttpServerTest : testing::Test {
  HttpServerTest() { open({.at = {"127.0.0.1", 0}}); }
  ~HttpServerTest() override { close(); }

  // Returns the reason why it did not open; empty if it did.
  std::string open(const http::Place& place, const std::string& proxy = "") {
    return net::on(loop, [&]() -> std::string {
      server.reset();
      auto opened = HttpServer::open(loop, place, proxy, callbacks());
      if (!opened.ok()) return opened.status().message;
      server = std::move(opened.value());
      const std::string& url = server->url();
      if (place.socket.empty())
        port = static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
      return "";
    });
  }
  void close() {
    net::on(loop, [this] {
      server.reset();
      return true;
    });
  }
  HttpServer::Callbacks callbacks() {
    return {
        .runs =
            [this] {
              ++lists;
              return json{{"runs", {{{"run", "night"}}, {{"run", "noon"}}}}};
            },
        .snapshot_of = [this](const std::string& run) -> std::variant<json, protocol::Reject> {
          ++snapshots;
          if (run == "over" || ended) return protocol::Reject{Code::kInvalidState, "it is over"};
          return json{{"run", run}, {"number", snapshots.load()}, {"more", std::string(more, 'x')}};
        },
        .keyring = [this] { return secured ? &keyring : nullptr; },
        .is_healthy = [this] { return healthy.load(); },
        .metrics = {}};
  }
  // The keyring of "alice", for all runs, and "bob", for "night".
  void secure() {
    keyring.emplace("alice000", Token{"alice", {}, *Secret::from_hex(secret_hex("a5"))});
    keyring.emplace("bob00000",
                    Token{"bob", {"night"}, *Secret::from_hex(secret_hex("5a")), Role::kObserver});
    secured = true;
  }

  std::atomic<int> lists = 0, snapshots = 0;
  std::atomic<size_t> more = 0;
  std::atomic<bool> ended = false, healthy = true, secured = false;
  Keyring keyring;
  uint16_t port = 0;
  net::Loop loop{"test"};
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpServerTest, EachPathHasItsAnswer) {
  const std::string page = Visitor(port).ask("/run/night");
  EXPECT_TRUE(page.starts_with("HTTP/1.1 200 OK\r\n")) << page;
  EXPECT_TRUE(
      contains(page, "\r\nContent-Security-Policy: default-src 'none'; script-src 'sha256-"));
  EXPECT_TRUE(contains(page, "\r\n\r\n<!DOCTYPE html>")) << page;
  EXPECT_TRUE(Visitor(port)
                  .ask("/api/v1/run/night")
                  .ends_with("\r\n\r\n{\"more\":\"\",\"number\":1,\"run\":\"night\"}\n"));
  EXPECT_TRUE(Visitor(port)
                  .ask("/api/v1/runs")
                  .ends_with("\r\n\r\n{\"runs\":[{\"run\":\"night\"},{\"run\":\"noon\"}]}\n"));
  EXPECT_TRUE(Visitor(port).ask("/metrics").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(Visitor(port).ask("/healthz").starts_with("HTTP/1.1 200 "));
  healthy = false;
  EXPECT_TRUE(Visitor(port).ask("/healthz").starts_with("HTTP/1.1 503 "));
  const std::string over = Visitor(port).ask("/api/v1/run/over");
  EXPECT_TRUE(over.starts_with("HTTP/1.1 404 ")) << over;
  EXPECT_TRUE(over.ends_with("{\"error\":\"it is over\"}\n")) << over;
}

TEST_F(HttpServerTest, AWrongRequestIsRefused) {
  Visitor post(port);
  EXPECT_TRUE(post.say("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na=b"));
  EXPECT_TRUE(post.on().starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
  Visitor garbage(port);
  EXPECT_TRUE(garbage.say(std::string(1u << 20, 'x')));
  EXPECT_TRUE(garbage.is_closed());
  Visitor foreign(port);
  EXPECT_TRUE(foreign.say("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
  EXPECT_TRUE(foreign.on().starts_with("HTTP/1.1 421 "));
}

TEST_F(HttpServerTest, ALargeSnapshotIsOneAnswer) {
  more = 3 * protocol::kSnapshotPartBytesMax;
  const std::string answer = Visitor(port).ask("/api/v1/run/night");
  const size_t body = answer.find("\r\n\r\n") + 4;
  EXPECT_TRUE(contains(answer, "\r\nContent-Length: " + std::to_string(answer.size() - body)));
  EXPECT_EQ(json::parse(answer.substr(body)).at("more").get<std::string>().size(), more);
}

TEST_F(HttpServerTest, TheStreamsOfARunShareASnapshotEachSecond) {
  more = 3 * protocol::kSnapshotPartBytesMax;  // several parts are one event
  std::deque<Visitor> streams;
  const auto start = steady_clock::now();
  for (int i = 0; i < 10; ++i) streams.emplace_back(port).get("/events?run=night");
  for (Visitor& stream : streams) {
    std::string heard = stream.on("\n\nevent: snapshot\n");
    for (int i = 0; i < 2; ++i) heard += stream.on("\"}\n\n");
    EXPECT_TRUE(heard.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"));
    EXPECT_TRUE(contains(heard, "\r\n\r\nretry: 1000\n\nevent: snapshot\ndata: {\"more\":\"xxx"));
  }
  const auto seconds_ago = (steady_clock::now() - start) / seconds(1);
  EXPECT_GE(seconds_ago, 1);
  EXPECT_LE(snapshots, 3 + 5 * (1 + seconds_ago)) << "far fewer than one for each";
}

TEST_F(HttpServerTest, AStreamEndsWithItsRun) {
  Visitor stream(port);
  stream.get("/events?run=night");
  EXPECT_TRUE(contains(stream.on("event: snapshot"), "200 OK"));
  ended = true;
  EXPECT_TRUE(stream.on().ends_with("event: gone\ndata: {\"error\":\"it is over\"}\n\n"));
  EXPECT_TRUE(Visitor(port).ask("/events?run=night").starts_with("HTTP/1.1 404 "));
}

TEST_F(HttpServerTest, AStreamThatIsNotReadIsClosed) {
  more = 3u << 20;
  Visitor deaf(port, 4096);
  deaf.get("/events?run=night");
  const auto start = steady_clock::now();
  EXPECT_TRUE(deaf.is_closed(seconds(30)));
  EXPECT_GE(steady_clock::now() - start, protocol::kObserverReadTimeout);
  more = 0;
  Visitor reader(port);
  reader.get("/events?run=night");
  EXPECT_TRUE(contains(reader.on("event: snapshot"), "200 OK"));
}

TEST_F(HttpServerTest, AStreamMaySendNothing) {
  Visitor stream(port);
  stream.get("/events?run=night");
  EXPECT_TRUE(contains(stream.on("event: snapshot"), "200 OK"));
  stream.say("x");
  EXPECT_TRUE(stream.is_closed(milliseconds(900))) << "before the next beat";
}

TEST_F(HttpServerTest, HasAsManyStreamsAsItMay) {
  std::deque<Visitor> streams;
  for (size_t i = 0; i < HttpServer::kStreamsMax; ++i)
    streams.emplace_back(port).get("/events?run=night");
  for (Visitor& stream : streams) EXPECT_TRUE(contains(stream.on("event: snapshot"), "200 OK"));
  const std::string refused = Visitor(port).ask("/events?run=night");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 503 ")) << refused;
  EXPECT_TRUE(contains(refused, "this master has 48 streams, the most that")) << refused;
  EXPECT_TRUE(Visitor(port).ask("/api/v1/run/night").starts_with("HTTP/1.1 200 "));
  streams.pop_front();
  const auto until = steady_clock::now() + seconds(30);
  std::string heard;
  while (!contains(heard, "200 OK") && steady_clock::now() < until) {
    Visitor next(port);
    next.get("/events?run=night");
    heard = next.on("\r\n\r\n");
  }
  EXPECT_TRUE(contains(heard, "200 OK")) << "a place is free again";
}

TEST_F(HttpServerTest, AFloodOfSilentConnectionsDelaysNobody) {
  Visitor stream(port);
  stream.get("/events?run=night");
  EXPECT_TRUE(contains(stream.on("event: snapshot"), "200 OK"));
  std::deque<Visitor> silent;
  for (int i = 0; i < 300; ++i) silent.emplace_back(port);
  EXPECT_TRUE(silent.front().is_closed()) << "the oldest makes room";
  const auto start = steady_clock::now();
  EXPECT_TRUE(Visitor(port).ask("/healthz").starts_with("HTTP/1.1 200 "));
  EXPECT_LT(steady_clock::now() - start, HttpServer::kTimeout) << "before silent ones are closed";
  EXPECT_TRUE(silent.back().is_closed());
  EXPECT_GE(steady_clock::now() - start, HttpServer::kTimeout - seconds(1));
  EXPECT_TRUE(contains(stream.on("event: snapshot"), "data")) << "the stream goes on";
}

TEST_F(HttpServerTest, TheListIsMadeAtMostOnceASecond) {
  const auto start = steady_clock::now();
  for (int i = 0; i < 30; ++i) Visitor(port).ask("/api/v1/runs");
  EXPECT_LE(lists, 1 + (steady_clock::now() - start) / seconds(1));
}

TEST_F(HttpServerTest, AKeyringAsksForAPassword) {
  secure();
  const std::string asked = Visitor(port).ask("/api/v1/runs");
  EXPECT_TRUE(asked.starts_with("HTTP/1.1 401 ")) << asked;
  EXPECT_TRUE(contains(asked, "\r\nWWW-Authenticate: Basic "));
  EXPECT_TRUE(Visitor(port).ask("/", "Authorization: Basic eDp5\r\n").starts_with("HTTP/1.1 401 "));
  EXPECT_TRUE(Visitor(port).ask("/", header(kLoginOfAlice)).starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(contains(Visitor(port).ask("/api/v1/runs", header(kLoginOfAlice)), "noon"));
  EXPECT_TRUE(Visitor(port)
                  .ask("/api/v1/runs", header(kLoginOfBob))
                  .ends_with("{\"runs\":[{\"run\":\"night\"}]}\n"));
  EXPECT_TRUE(
      Visitor(port).ask("/api/v1/run/noon", header(kLoginOfBob)).starts_with("HTTP/1.1 403 "));
}

TEST_F(HttpServerTest, ARevokedTokenEndsItsStreams) {
  secure();
  Visitor alice(port), bob(port);
  alice.get("/events?run=night", header(kLoginOfAlice));
  bob.get("/events?run=night", header(kLoginOfBob));
  EXPECT_TRUE(contains(alice.on("event: snapshot"), "200 OK"));
  EXPECT_TRUE(contains(bob.on("event: snapshot"), "200 OK"));
  net::on(loop, [&] {
    keyring.erase("bob00000");
    server->revoke({"bob00000"});
    return true;
  });
  EXPECT_TRUE(bob.is_closed());
  EXPECT_TRUE(
      Visitor(port).ask("/events?run=night", header(kLoginOfBob)).starts_with("HTTP/1.1 401 "));
  EXPECT_TRUE(contains(alice.on("event: snapshot"), "data"));
}

TEST_F(HttpServerTest, AUnixSocketNeedsNoPassword) {
  const TempFolder folder;
  const std::string path = folder.path() + "/http.sock";
  secure();
  ASSERT_EQ(open({.socket = path}), "");
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const std::string request = "GET /api/v1/run/night HTTP/1.1\r\nHost: localhost:9000\r\n\r\n";
  EXPECT_TRUE(contains(Asker(path).ask(request), "\"run\":\"night\""));
  net::on(loop, [&] {
    const auto second = HttpServer::open(loop, {.socket = path}, "", callbacks());
    EXPECT_FALSE(second.ok());
    EXPECT_EQ(second.ok() ? "" : second.status().message,
              "--http: another process listens at " + path + ": end it, or name another path");
    return true;
  });
  close();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(HttpServerTest, APlaceThatCannotBeIsRefused) {
  const std::string taken = std::to_string(port);
  net::on(loop, [&] {
    const auto second = HttpServer::open(loop, {.at = {"127.0.0.1", port}}, "", callbacks());
    EXPECT_FALSE(second.ok());
    EXPECT_EQ(second.ok() ? "" : second.status().message,
              "--http: cannot listen on 127.0.0.1:" + taken +
                  ": address already in use, another process listens there: end it, or take "
                  "another port");
    return true;
  });
  const std::string refused = open({.at = {"0.0.0.0", 0}});
  EXPECT_TRUE(refused.starts_with("--http is 0.0.0.0:0, which other machines may reach"))
      << refused;
  EXPECT_EQ(open({.at = {"0.0.0.0", 0}}, "pccl.example.org"), "");
  Visitor proxied(port);
  EXPECT_TRUE(proxied.say("GET / HTTP/1.0\r\nHost: pccl.example.org\r\n\r\n"));
  EXPECT_TRUE(proxied.on().starts_with("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace pccl::master
