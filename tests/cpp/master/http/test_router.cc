#include "master/http/router.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"
#include "tests/cpp/master/keyring_lines.h"
#include "tests/cpp/master/logins.h"

namespace pccl::master::http {
namespace {

using Kind = Route::Kind;

class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    request.host = "localhost:8080";
    keyring.emplace("alice000",
                    pccl::master::Token{"alice", {}, *Secret::from_hex(secret_hex("a5"))});
    keyring.emplace(
        "bob00000",
        pccl::master::Token{
            "bob", {"night", "day"}, *Secret::from_hex(secret_hex("5a")), Role::kObserver});
  }
  std::variant<Route, Refusal> ask(const std::string& path) {
    request.path = path;
    return route(request, site);
  }
  // "3 night by alice000", or "404: why".
  std::string outcome(const std::string& path) {
    const auto found = ask(path);
    if (const auto* refusal = std::get_if<Refusal>(&found))
      return std::to_string(refusal->status) + ": " + refusal->why;
    const auto& [kind, run, holder] = std::get<Route>(found);
    constexpr const char* kNames[] = {"page", "runs", "run", "events", "metrics", "health"};
    return kNames[static_cast<size_t>(kind)] + (run.empty() ? "" : " " + run) +
           (holder ? " by " + holder->name : "");
  }
  int status(const std::string& path = "/") {
    const auto found = ask(path);
    const auto* refusal = std::get_if<Refusal>(&found);
    return refusal == nullptr ? 200 : refusal->status;
  }
  Keyring keyring;
  Site site{.host = "127.0.0.1", .proxy = ""};
  Request request;
};

TEST_F(RouterTest, EachPathHasItsAnswer) {
  EXPECT_EQ(outcome("/"), "page");
  EXPECT_EQ(outcome("/run/night"), "page");
  EXPECT_EQ(outcome("/api/v1/runs"), "runs");
  EXPECT_EQ(outcome("/api/v1/run/night and day"), "run night and day");
  EXPECT_EQ(outcome("/metrics"), "metrics");
  EXPECT_EQ(outcome("/healthz"), "health");
  request.query["run"] = "night";
  EXPECT_EQ(outcome("/events"), "events night");
}

TEST_F(RouterTest, AnotherPathIsNotFound) {
  for (const char* path :
       {"", "//", "/x", "/run", "/api", "/api/v1", "/api/v1/run", "/api/v1/runs/", "/Metrics",
        "/healthz/", "/events/", "/favicon.ico", "/.."})
    EXPECT_EQ(status(path), 404) << path;
}

TEST_F(RouterTest, ANameThatNoRunHasIsRefused) {
  for (const std::string path : {"/events", "/api/v1/run/", "/api/v1/run/a\nb"})
    EXPECT_EQ(status(path), 400) << path;
}

TEST_F(RouterTest, AForeignHostIsRefused) {
  const std::string refused =
      "421: the Host of the request is no name of this master: use localhost, or name the host of "
      "a proxy with --http-behind-proxy";
  for (const char* host : {"evil.example:8080", "localhost.evil.example", "10.0.0.7:8080", ":8080",
                           "[]", "127.0.0.1.evil.example", "[2001:db8::1]:8080", "a]:80"}) {
    request.host = host;
    EXPECT_EQ(outcome("/"), refused) << host;
    EXPECT_EQ(status("/healthz"), 421) << host;
  }
  for (const char* host :
       {"localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:9000", "[::1]:8080", "127.9.9.9"}) {
    request.host = host;
    EXPECT_EQ(outcome("/"), "page") << host;
  }
}

TEST_F(RouterTest, TheHostOfAProxyIsTaken) {
  site.proxy = "pccl.example.org";
  site.host = "10.0.0.7";
  for (const char* host : {"pccl.example.org", "PCCL.example.org:443", "10.0.0.7:8080"}) {
    request.host = host;
    EXPECT_EQ(outcome("/"), "page") << host;
  }
  request.host = "example.org";
  EXPECT_EQ(status(), 421);
}

TEST_F(RouterTest, APageOfAnotherOriginMayNotRead) {
  const std::string refused = "403: a page of another origin may not read this";
  for (const char* site_of_page : {"cross-site", "same-site", "no-such-word"}) {
    request.fetch_site = site_of_page;
    for (const char* mode : {"", "cors", "no-cors", "websocket"}) {
      request.fetch_mode = mode;
      EXPECT_EQ(outcome("/api/v1/runs"), refused) << site_of_page << mode;
    }
    request.fetch_mode = "navigate";  // a person has followed a link
    EXPECT_EQ(outcome("/"), "page");
  }
  request.fetch_mode = "cors";
  for (const char* site_of_page : {"same-origin", "none"}) {
    request.fetch_site = site_of_page;
    EXPECT_EQ(outcome("/api/v1/runs"), "runs");
  }
}

TEST_F(RouterTest, AnotherOriginMayNotRead) {
  for (const char* origin : {"null", "http://evil.example", "http://localhost:3000",
                             "http://localhost", "ftp://localhost:8080"}) {
    request.origin = origin;
    EXPECT_EQ(status("/api/v1/runs"), 403) << origin;
  }
  for (const char* origin : {"http://localhost:8080", "https://localhost:8080"}) {
    request.origin = origin;
    EXPECT_EQ(outcome("/api/v1/runs"), "runs") << origin;
  }
}

TEST_F(RouterTest, AKeyringAsksForAPassword) {
  site.keyring = &keyring;
  for (const char* path : {"/", "/api/v1/runs", "/api/v1/run/night", "/metrics", "/no-such-page"})
    EXPECT_EQ(status(path), 401) << path;
  EXPECT_TRUE(contains(outcome("/"), "holders of a token only"));
  request.authorization = "alice000";  // the id of a token proves nothing
  EXPECT_EQ(status(), 401);
  request.authorization = "Basic eDp5";
  EXPECT_TRUE(contains(outcome("/"), "the user or the password is wrong"));
  EXPECT_EQ(outcome("/healthz"), "health");
  request.authorization = kLoginOfAlice;
  EXPECT_EQ(outcome("/"), "page by alice");
  EXPECT_EQ(outcome("/metrics"), "metrics by alice");
  EXPECT_EQ(outcome("/api/v1/run/noon"), "run noon by alice");
  EXPECT_EQ(status("/no-such-page"), 404);
}

TEST_F(RouterTest, ATokenOfSomeRunsShowsTheseOnly) {
  site.keyring = &keyring;
  request.authorization = kLoginOfBob;
  EXPECT_EQ(outcome("/run/noon"), "page by bob") << "the page alone has no facts";
  EXPECT_EQ(outcome("/api/v1/run/night"), "run night by bob");
  EXPECT_EQ(status("/api/v1/run/noon"), 403);
  EXPECT_EQ(status("/metrics"), 403);
  EXPECT_TRUE(contains(outcome("/api/v1/run/noon"), "the token bob00000 of \"bob\" is for other"));
  const Holder bob{"bob00000", "bob"};
  EXPECT_TRUE(may_see(bob, &keyring, "day"));
  EXPECT_FALSE(may_see(bob, &keyring, "noon"));
  EXPECT_FALSE(may_see(std::nullopt, &keyring, "day"));
  EXPECT_TRUE(may_see(std::nullopt, nullptr, "day"));
}

}  // namespace
}  // namespace pccl::master::http
