// pccl-probe: the compiled part of `pccl probe`, `pccl doctor` and `pccl status URL`, as a process:
// an end of a path measurement, a greeting of a master, or an observer of one.
// pccl_backend/command/endpoint.py starts it, and the Python commands show everything that people
// see. The first line of the input is a request, one JSON object, so that no secret is in the
// arguments of the process. The input then stays open. Every line that pccl-probe prints is one
// JSON object.
//
//   {"tokens": ["pccl1.id.secret", ...], "serve": {"host": "::", "port": 48149, "about": "..."}}
//     {"listening": 48149}
//     {"client": "10.0.0.7", "text": "measures"}
//   {"tokens": [], "measure": {"host": "10.0.0.1", "port": 48149, "streams": [1, 4],
//     "directions": ["there", "both"], "milliseconds": 3000, "congestion": ""}}
//     {"rtt": 0.08, "about": "..."}
//     {"streams": 1, "direction": "there", "there": 93.1, "back": null, "busy": 0.1}
//   {"tokens": [], "watch": {"host": "10.0.0.1", "port": 48148, "run": "night",
//     "insecure": false, "milliseconds": 1000}}     (from an answer to the next question; 0: one)
//     {"snapshot": {...}}                           (master/operator/snapshot.h)
//   {"tokens": [], "greet": {"host": "10.0.0.1", "port": 48148, "padding": 0,
//     "milliseconds": 3000}}
//     {"greeting": "answered", "code": "invalid argument", "why": "the name of the run is empty",
//       "rtt": 0.08, "unacknowledged": 0}
//   {"tokens": [], "dial_back": {"host": "10.0.0.1", "port": 48148, "own_port": 40001,
//     "milliseconds": 5000}}       (0: it asks for the clock only)
//     {"greeting": "answered", "code": "", "why": "", "rtt": 0.08, "unacknowledged": 0,
//       "dialed": {"host": "10.0.0.7", "connected": true, "fault": "other", "proof": "1f...",
//         "ahead": 0.01}}
//   {"failed": "busy", "why": "..."}
//
// pccl-probe ends when its input ends, so it never outlives the process that started it. It ignores
// SIGINT, because a terminal sends SIGINT to both processes. Exit codes: 0; 1 after "failed"; 2 if
// the input is no request.

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/little_endian.h"
#include "csrc/base/token.h"
#include "csrc/net/address.h"
#include "csrc/net/library_check.h"
#include "csrc/probe/client_core.h"
#include "csrc/probe/server_core.h"
#include "csrc/probe/shell/greeting.h"
#include "csrc/probe/shell/probe_end.h"
#include "csrc/protocol/limits.h"
#include "csrc/watch/shell/watch_end.h"

namespace {

using namespace pccl;
using Json = nlohmann::json;

void print(const Json& line) {
  // Text of another machine may be no UTF-8.
  const std::string text = line.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

int fail(const std::string& kind, const std::string& why) {
  print({{"failed", kind}, {"why", why}});
  return 1;
}

const char* name_of(probe::Ending ending) {
  switch (ending) {
    case probe::Ending::kDone: return "done";
    case probe::Ending::kRefused: return "refused";
    case probe::Ending::kNoAnswer: return "no answer";
    case probe::Ending::kNoConnect: return "no connection";
    case probe::Ending::kNoProbe: return "no probe";
    case probe::Ending::kBusy: return "busy";
    case probe::Ending::kToken: return "token";
    case probe::Ending::kLost: return "lost";
  }
  return "lost";
}

const char* name_of(watch::Ending ending) {
  switch (ending) {
    case watch::Ending::kDone: return "done";
    case watch::Ending::kNoMaster: return "no master";
    case watch::Ending::kToken: return "token";
    case watch::Ending::kRefused: return "rejected";
    case watch::Ending::kLost: return "lost";
  }
  return "lost";
}

// Returns false if the text is no JSON. It is not parsed into values, because it comes from outside
// and may be nested deeply. In JSON, only the space between values can contain the end of a line.
bool print_snapshot(std::string text) {
  if (!Json::accept(text)) return false;
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\r', ' ');
  std::printf("{\"snapshot\":%s}\n", text.c_str());
  std::fflush(stdout);
  return true;
}

const char* name_of(probe::Greeting::Ending ending) {
  using Ending = probe::Greeting::Ending;
  switch (ending) {
    case Ending::kAnswered: return "answered";
    case Ending::kRefused: return "refused";
    case Ending::kNoAnswer: return "no answer";
    case Ending::kNoConnection: return "no connection";
    case Ending::kSilent: return "silent";
    case Ending::kClosed: return "closed";
    case Ending::kUnknownToken: return "unknown token";
    case Ending::kWrongSecret: return "wrong secret";
    case Ending::kPlainText: return "plain text";
    case Ending::kUnproven: return "unproven";
    case Ending::kNoMaster: return "no master";
  }
  return "no master";
}

const char* name_of(LinkFault fault) {
  switch (fault) {
    case LinkFault::kRefused: return "refused";
    case LinkFault::kNoAnswer: return "no answer";
    default: return "other";
  }
}

// The bytes of a proof as they arrive.
std::string proof_text(uint64_t proof) {
  std::array<std::byte, sizeof proof> bytes{};
  store_little_endian(bytes.data(), proof);
  std::string out;
  for (const std::byte byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte));
    out += digits;
  }
  return out;
}

void print_greeting(const probe::Greeting::Outcome& outcome) {
  const bool rejected =
      outcome.ending == probe::Greeting::Ending::kAnswered && !outcome.dialed.has_value();
  Json line = {{"greeting", name_of(outcome.ending)},
               {"code", rejected ? text(outcome.reject.code) : ""},
               {"why", rejected ? outcome.reject.text : outcome.why},
               {"rtt", to_seconds(outcome.rtt)},
               {"unacknowledged", outcome.unacknowledged}};
  if (outcome.dialed) {
    line["dialed"] = {{"host", outcome.dialed->host},
                      {"connected", outcome.dialed->connected},
                      {"fault", name_of(outcome.dialed->fault)},
                      {"proof", proof_text(outcome.dialed->proof)},
                      {"ahead", to_seconds(outcome.ahead)}};
  }
  print(line);
}

// The rate in Mbit/s.
double rate(const probe::Trial& trial, uint64_t bytes) {
  return static_cast<double>(bytes) * 8e-6 / to_seconds(trial.length() - trial.warm_up());
}

void print_measured(const probe::Trial& trial, const probe::TrialResult& here,
                    const probe::TrialResult& there) {
  Json line = {{"streams", trial.streams},
               {"direction", probe::name_of(trial.direction)},
               {"there", nullptr},
               {"back", nullptr},
               {"busy", std::max(here.busy, there.busy) / 1000.0}};
  if (trial.direction != probe::Direction::kBack) line["there"] = rate(trial, there.bytes);
  if (trial.direction != probe::Direction::kThere) line["back"] = rate(trial, here.bytes);
  print(line);
}

struct Request {
  std::optional<watch::WatchEnd::Options> master;  // of an observer
  watch::Plan watch;                               // likewise
  bool serves = false, greets = false;
  Endpoint at;
  probe::ProbeEnd::Options options;
  probe::Plan plan;
  probe::Greeting::Options greeting;
};

// The functions below throw if the text is no request. Only the program that has started this
// one writes it.
std::vector<Token> parse_tokens(const Json& texts) {
  std::vector<Token> tokens;
  for (const Json& one : texts) {
    Result<Token> token = parse_token(one.get_ref<const std::string&>());
    if (!token.ok()) throw std::invalid_argument("a token " + token.status().message);
    tokens.push_back(std::move(token.value()));
  }
  return tokens;
}

probe::Greeting::Options parse_greeting(const Json& asked, const std::vector<Token>& tokens) {
  probe::Greeting::Options options;
  if (asked.contains("own_port")) {
    options.dial_back = asked.at("own_port");
  } else {
    options.padding = asked.at("padding");
  }
  options.at_most = std::chrono::milliseconds(asked.at("milliseconds").get<uint32_t>());
  if (tokens.size() > 1 || options.padding > probe::Greeting::kPaddingMax)
    throw std::invalid_argument("a greeting out of bounds");
  for (const Token& token : tokens)
    options.token.emplace(token.id, net::control_key(token.secret.bytes()));
  return options;
}

void parse_watch(const Json& asked, std::vector<Token> tokens, Request& request) {
  request.master = {{asked.at("host"), asked.at("port")}, {}, asked.at("insecure")};
  for (Token& token : tokens) request.master->token = std::move(token);
  request.watch.run = asked.at("run");
  const std::chrono::milliseconds interval(asked.at("milliseconds").get<uint32_t>());
  if (request.watch.run.size() > protocol::kRunNameBytesMax) throw std::invalid_argument("run");
  if (interval.count() == 0) return;
  if (interval < protocol::kSnapshotIntervalMin) throw std::invalid_argument("milliseconds");
  request.watch.interval = interval;
}

Request parse(const std::string& text) {
  const Json json = Json::parse(text);
  Request request;
  std::vector<Token> tokens = parse_tokens(json.at("tokens"));
  if (json.contains("watch")) {
    parse_watch(json.at("watch"), std::move(tokens), request);
    return request;
  }
  request.serves = json.contains("serve");
  const char* kind = "measure";
  for (const char* other : {"serve", "greet", "dial_back"}) {
    if (json.contains(other)) kind = other;
  }
  request.serves = json.contains("serve");
  request.greets = json.contains("greet") || json.contains("dial_back");
  const Json& asked = json.at(kind);
  request.at = {asked.at("host"), asked.at("port")};
  if (request.greets) {
    request.greeting = parse_greeting(asked, tokens);
    return request;
  }
  for (const Token& token : tokens)
    request.options.keys.emplace(token.id, net::probe_key(token.secret.bytes()));
  if (request.serves) {
    request.options.about = asked.at("about");
    const size_t bytes = request.options.about.size();
    if (bytes == 0 || bytes > protocol::kAboutBytesMax) throw std::invalid_argument("about");
    return request;
  }
  request.plan = {.streams = asked.at("streams"),
                  .directions = {},
                  .milliseconds = asked.at("milliseconds"),
                  .congestion = asked.at("congestion")};
  for (const Json& one : asked.at("directions"))
    request.plan.directions.push_back(probe::direction_named(one).value());
  for (const uint32_t streams : request.plan.streams) {
    const probe::Trial trial{.streams = streams,
                             .milliseconds = request.plan.milliseconds,
                             .direction = probe::Direction::kBoth,
                             .wan = false,
                             .congestion = request.plan.congestion};
    if (!probe::is_valid(trial)) throw std::invalid_argument("a trial out of bounds");
  }
  if (request.plan.streams.empty() || request.plan.directions.empty())
    throw std::invalid_argument("no trial");
  return request;
}

uint64_t random_session() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

// An end of any kind. It starts on the loop, and is destroyed there. `finish` may be called on
// any thread, more than once.
using End = std::shared_ptr<void>;

End start_watch(net::Loop& loop, Request& request, const std::function<void(int)>& finish) {
  watch::WatchEnd::Callbacks callbacks;
  callbacks.on_snapshot = [finish](const std::string& snapshot) {
    if (!print_snapshot(snapshot)) finish(fail("lost", "its answer is no JSON"));
  };
  callbacks.on_over = [finish](const watch::Over& over) {
    const bool done = over.ending == watch::Ending::kDone;
    finish(done ? 0 : fail(name_of(over.ending), over.why));
  };
  return std::make_shared<watch::WatchEnd>(loop, request.watch, std::move(*request.master),
                                           std::move(callbacks));
}

End start_greeting(net::Loop& loop, Request& request, const std::function<void(int)>& finish) {
  return std::make_shared<probe::Greeting>(loop, request.at, std::move(request.greeting),
                                           [finish](const auto& outcome) {
                                             print_greeting(outcome);
                                             finish(0);
                                           });
}

End start_probe(net::Loop& loop, Request& request, const std::function<void(int)>& finish) {
  const uint64_t machine = net::machine_id();
  probe::ProbeEnd::Callbacks callbacks;
  std::unique_ptr<probe::Core> core;
  if (request.serves) {
    core = std::make_unique<probe::ServerCore>(machine);
    callbacks.on_note = [](const std::string& host, const std::string& text) {
      print({{"client", host}, {"text", text}});
    };
  } else {
    core = std::make_unique<probe::ClientCore>(request.plan, random_session(), machine);
    callbacks.on_ready = [](const probe::Ready& ready) {
      print({{"rtt", to_seconds(ready.rtt)}, {"about", ready.about}});
    };
    callbacks.on_measured = print_measured;
    callbacks.on_over = [finish](const probe::Over& over) {
      const bool done = over.ending == probe::Ending::kDone;
      finish(done ? 0 : fail(name_of(over.ending), over.why));
    };
  }
  auto end = std::make_shared<probe::ProbeEnd>(loop, std::move(core), std::move(request.options),
                                               std::move(callbacks));
  if (!request.serves) {
    end->dial(request.at);
    return end;
  }
  const Result<uint16_t> port = end->listen(request.at);
  if (!port.ok()) {
    finish(fail("listen", port.status().message));
  } else {
    print({{"listening", port.value()}});
  }
  return end;
}

int run(Request request) {
  std::promise<int> over;
  std::once_flag once;
  const std::function<void(int)> finish = [&](int code) {
    std::call_once(once, [&] { over.set_value(code); });
  };
  net::Loop loop("pccl-probe");
  if (!loop.status().ok()) return fail("listen", loop.status().message);
  End end;
  loop.post([&] {
    end = request.master   ? start_watch(loop, request, finish)
          : request.greets ? start_greeting(loop, request, finish)
                           : start_probe(loop, request, finish);
  });
  std::thread input([&finish] {
    for (std::string line; std::getline(std::cin, line);) {
    }
    finish(0);
  });
  input.detach();  // it may wait for input for ever
  const int code = over.get_future().get();
  loop.post([&] { end.reset(); });
  loop.stop();
  std::fflush(stdout);
  std::_Exit(code);
}

}  // namespace

int main() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGINT, SIG_IGN);
  if (const Status status = net::check_libraries(nullptr); !status.ok()) {
    std::fprintf(stderr, "pccl-probe: %s\n", status.message.c_str());
    return 1;
  }
  std::string line;
  std::getline(std::cin, line);
  Request request;
  const Status status = caught([&] { request = parse(line); });
  wipe(line);
  if (!status.ok()) {  // the message may have a part of a token, so it is not shown
    std::fprintf(stderr, "pccl-probe: its input is no request: `pccl` starts this program\n");
    return 2;
  }
  return run(std::move(request));
}
