#include "master/http/router.h"

#include <array>
#include <string_view>
#include <utility>

#include "csrc/base/endpoint.h"
#include "master/http/basic_auth.h"
#include "master/members/admission.h"
#include "master/members/token_admission.h"

namespace pccl::master::http {
namespace {

using Kind = Route::Kind;

constexpr std::string_view kRunPage = "/run/", kRunSnapshot = "/api/v1/run/", kEvents = "/events";
struct Fixed {
  std::string_view path;
  Kind kind;
};
constexpr std::array kFixed = {
    Fixed{"/", Kind::kPage},
    Fixed{"/api/v1/runs", Kind::kRuns},
    Fixed{"/metrics", Kind::kMetrics},
    Fixed{"/healthz", Kind::kHealth},
};

// The host of a Host header, in small letters. It may have a port: "localhost:8080", "[::1]:8080".
std::string host_of(std::string_view header) {
  const size_t colon = header.rfind(':');
  if (colon != std::string_view::npos && header.find(']', colon) == std::string_view::npos)
    header = header.substr(0, colon);
  if (header.starts_with('[') && header.ends_with(']'))
    header = header.substr(1, header.size() - 2);
  std::string host(header);
  for (char& c : host) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return host;
}

// Any port is right: `ssh -L` may give the page another port than it has here, and a port does not
// matter for DNS rebinding.
bool is_ours(const std::string& header, const Site& site) {
  const std::string host = host_of(header);
  if (host.empty()) return false;
  return host_kind(host) == HostKind::kLoopback || is_same_host(host, site.host) ||
         is_same_host(host, site.proxy);
}

// Browsers send Sec-Fetch-Site, and cannot be made to send another one; older ones send Origin
// when a page reads from another origin. Other clients send neither.
bool is_foreign(const Request& request) {
  const std::string& site = request.fetch_site;
  const bool elsewhere = !site.empty() && site != "same-origin" && site != "none";
  if (elsewhere && request.fetch_mode != "navigate") return true;
  return !request.origin.empty() && request.origin != "http://" + request.host &&
         request.origin != "https://" + request.host;
}

std::optional<Route> place_of(const Request& request) {
  for (const auto& [path, kind] : kFixed) {
    if (request.path == path) return Route{kind};
  }
  if (request.path.starts_with(kRunPage)) return Route{Kind::kPage};
  if (request.path.starts_with(kRunSnapshot))
    return Route{Kind::kRun, request.path.substr(kRunSnapshot.size())};
  const auto run = request.query.find("run");
  if (request.path == kEvents)
    return Route{Kind::kEvents, run == request.query.end() ? "" : run->second};
  return std::nullopt;
}

Refusal needs_password(bool shown) {
  return {401, shown ? "the user or the password is wrong, or the token was revoked: `pccl token "
                       "http-password` prints both, from the file of a token"
                     : "this master shows its runs to holders of a token only: `pccl token "
                       "http-password` prints a user and a password, from the file of a token"};
}

}  // namespace

std::variant<Route, Refusal> route(const Request& request, const Site& site) {
  if (!is_ours(request.host, site)) {
    return Refusal{421,
                   "the Host of the request is no name of this master: use localhost, or name "
                   "the host of a proxy with --http-behind-proxy"};
  }
  if (is_foreign(request)) return Refusal{403, "a page of another origin may not read this"};
  auto found = place_of(request);
  if (found && found->kind == Kind::kHealth) return *found;
  if (site.keyring != nullptr) {
    auto holder = proven_by(request.authorization, *site.keyring);
    if (!holder) return needs_password(!request.authorization.empty());
    if (found) found->holder = std::move(holder);
  }
  if (!found) {
    return Refusal{404,
                   "there is no such page: /, /run/NAME, /api/v1/runs, /api/v1/run/NAME, "
                   "/events?run=NAME, /metrics and /healthz exist"};
  }
  const bool is_of_run = found->kind == Kind::kRun || found->kind == Kind::kEvents;
  if (is_of_run) {
    if (const auto bad = refuse_run(found->run)) return Refusal{400, bad->text};
  }
  const bool needs_all = found->kind == Kind::kMetrics;
  if (!found->holder || !(is_of_run || needs_all)) return *found;
  // No run has an empty name, so a token that is for some runs only does not have this one.
  const auto refused = refuse_token(*found->holder, *site.keyring, found->run, Role::kObserver, {});
  if (refused) return Refusal{403, refused->text};
  return *found;
}

bool may_see(const std::optional<Holder>& holder, const Keyring* keyring, const std::string& run) {
  if (keyring == nullptr) return true;
  return holder && !refuse_token(*holder, *keyring, run, Role::kObserver, {});
}

}  // namespace pccl::master::http
