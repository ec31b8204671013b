// router: decides how a request is answered, and whether its sender may have the answer. It is
// pure. The server (shell/http_server.h) makes the answer.
//   /                   the page, which shows the list of runs
//   /run/NAME           the page, which shows this run
//   /api/v1/runs        the runs, as JSON (operator/control.h)
//   /api/v1/run/NAME    a snapshot of the run, as JSON (operator/snapshot.h)
//   /events?run=NAME    a snapshot each second, as server-sent events
//   /metrics            the metrics of all runs, in the text format of Prometheus
//   /healthz            200 while the journal is writable, else 503
// Any web page that a person visits can let the browser send requests here. So a request is
// refused if its Host is a foreign name (DNS rebinding), or if the page of another origin made it.
// Links from other pages work: they open the page, and the other page sees nothing of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "master/http/request.h"
#include "master/runs/keyring.h"
#include "master/runs/records.h"

namespace pccl::master::http {

// The kind of answer that a request asks for, and the holder of its token.
struct Route {
  enum class Kind : uint8_t { kPage, kRuns, kRun, kEvents, kMetrics, kHealth };
  Kind kind = Kind::kPage;
  std::string run = {};               // for kRun and kEvents
  std::optional<Holder> holder = {};  // of a token that it has proven; none without a keyring
};

// The rules of one server.
struct Site {
  std::string host;                  // the address or name that it listens on
  std::string proxy;                 // the name that a proxy serves it under; empty: none
  const Keyring* keyring = nullptr;  // null: no token is needed
};

std::variant<Route, Refusal> route(const Request& request, const Site& site);

// Whether the holder may see the run. Everybody may, without a token.
bool may_see(const std::optional<Holder>& holder, const Keyring* keyring, const std::string& run);

}  // namespace pccl::master::http
