// HttpServer: the pages of a master, for browsers and for Prometheus (docs/watching.md). It only
// reads: the router (http/router.h) knows GET and no command. It belongs to the loop that opened
// it: it is destroyed there, and its callbacks are called there.
// Invariants:
// 1. A connection carries one request: its head, the answer, the end. An answer of /events goes on
//    until one side ends it.
// 2. At most kStreamsMax connections have such an answer, and at most kOthersMax do not. Another
//    one replaces the oldest of the latter. So a flood of connections ends mostly itself.
// 3. Snapshots are made by an Observing (observing.h): all streams of a run share one each second,
//    and requests for one are answered at most five times a second, however many there are. The
//    lists of runs and the metrics are made at most once a second. So visitors cost the loop a
//    bounded share of its time.
// 4. A visitor has at most one answer, or one snapshot of a stream, that it has not read.
// Failure: a visitor that breaks a rule, sends its request too slowly or does not read loses its
// connection. The master never waits for it.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <variant>

#include "csrc/base/clock.h"
#include "csrc/base/result.h"
#include "csrc/net/loop.h"
#include "csrc/protocol/messages.h"
#include "master/http/place.h"
#include "master/runs/keyring.h"

namespace pccl::master {

class HttpServer {
 public:
  static constexpr size_t kStreamsMax = 48;
  static constexpr size_t kOthersMax = 32;
  // Maximum time for a visitor to send its request. It has the same time again to read an answer.
  static constexpr Duration kTimeout = std::chrono::seconds(5);
  static constexpr Duration kBeat = std::chrono::seconds(1);  // of the streams

  struct Callbacks {
    std::function<nlohmann::json()> runs;  // a list, as in control.h
    // A snapshot, or the reason why there is none: the run is not under way.
    std::function<std::variant<nlohmann::json, protocol::Reject>(const std::string& run)>
        snapshot_of;
    std::function<const Keyring*()> keyring;  // null: nobody needs a token
    std::function<bool()> is_healthy;         // whether the journal can be written
    // In the text format of Prometheus. Empty: this master has no metrics.
    std::function<std::string()> metrics = {};
  };

  // `proxy`: the name under which a proxy serves the pages; empty: there is none. Fails with
  // kSystem if the place is not available, and with kInvalidArgument like refuse().
  static Result<std::unique_ptr<HttpServer>> open(net::Loop& loop, const http::Place& place,
                                                  const std::string& proxy, Callbacks callbacks);
  ~HttpServer();

  // Refuses an address that other machines can reach, unless a proxy protects the way there.
  static Status refuse(const http::Place& place, const std::string& proxy);
  // "http://127.0.0.1:8080/", or "unix:PATH".
  const std::string& url() const;
  // Ends the connections of those that have proven these tokens.
  void revoke(const std::set<TokenId>& tokens);

 private:
  struct Impl;
  HttpServer();
  std::unique_ptr<Impl> impl_;
};

}  // namespace pccl::master
