// The happy path, on the data loop: the listener hands in a socket or a dial connects one; a
// ShellLink introduces both ends; it joins the Engine and is reported up (by the side that
// dialled, which also opens further lanes, all at once). What can go wrong: see shell.h.

#include "csrc/ring/shell.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <future>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/log.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/loop.h"
#include "csrc/protocol/limits.h"
#include "csrc/ring/link_traffic.h"
#include "csrc/ring/shell_link.h"

namespace pccl::ring {
namespace {

using protocol::LinkState;

constexpr Duration kRetryMax = std::chrono::seconds(1);
// Connections that have not said who they are: room for those of all members at once. Honest ones
// do within a round trip, so the oldest goes first.
constexpr size_t kStrangersMax = protocol::kMembersMax + size_t{3} * protocol::kLanesMax;
// So many may be there when the application has few descriptors left: a link that it needs comes
// in, strangers take none of them for long.
constexpr size_t kStrangersWhenScarce = 8;

// Of a link. Further lanes only make it faster, so they may take a sixteenth of what this process
// may open, and the application finds the rest: with the usual 1,024 descriptors all lanes.
uint32_t lanes_affordable() {
  return static_cast<uint32_t>(
      std::clamp<size_t>(net::descriptors_max() / 16, 1, protocol::kLanesMax));
}

// Two processes that read the same here are on one machine since its last start.
uint64_t machine_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(file, id) ? tag_id(id).value : 0;
}

// As messages say it: 0 is not known.
uint32_t microseconds(const ShellLink& link) {
  const auto way = std::chrono::ceil<std::chrono::microseconds>(link.path().least).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(way, 0, UINT32_MAX));
}

}  // namespace

struct Shell::Inside {
  // A peer that we are to reach: connecting, introducing, or waiting for the next attempt.
  struct Dial {
    net::Endpoint at;
    std::unique_ptr<net::Connector> connector;
    std::unique_ptr<ShellLink> link;
    std::unique_ptr<net::Timer> retry;
  };
  // A further lane that is connecting or introducing.
  struct Opening {
    std::unique_ptr<net::Connector> connector;
    std::unique_ptr<ShellLink> lane;
  };
  struct Link {
    const ShellLink& first() const { return *lanes.front(); }
    std::vector<std::unique_ptr<ShellLink>> lanes;  // never empty
    Duration way{0};                                // there and back, when it came up
    std::optional<net::Endpoint> dialled;           // nothing: the other side has dialled
    std::list<Opening> opening;
    std::optional<LinkTraffic> traffic;  // of a far one: its lanes may rest
  };

  // Whether a link lives whose other end dials again.
  struct Probe {
    protocol::Probe state;
    std::unique_ptr<net::Timer> timer;
  };

  Inside(Options given, Callbacks called);

  void listen(const std::string& host);
  void dial(PeerId peer, const net::Endpoint& at, uint32_t dead_serial);
  void attempt(PeerId peer);
  void connected(PeerId peer, Result<net::Socket> result);
  void unreachable(PeerId peer, const std::string& why, LinkFault fault);
  bool end_dial(PeerId peer);
  void forget(PeerId peer);
  void drop(PeerId peer);

  void widen(PeerId peer);
  uint32_t lanes_open(Duration way) const;
  uint32_t lanes_at_first(PeerId peer, Duration way) const;
  void carry(Link& link, ShellLink& lane);
  void crowd(PeerId peer);
  void open_lane(PeerId peer, Link& link);
  void opened(PeerId peer, std::list<Opening>::iterator opening, Result<net::Socket> result);

  void accepted(net::Socket socket);
  void introduced(std::list<std::unique_ptr<ShellLink>>::iterator stranger);
  bool is_up(const ShellLink& link) const;
  void join(std::unique_ptr<ShellLink> link);
  void join_further(Link& link, std::unique_ptr<ShellLink> lane);
  Duration tick() const { return options.peer_timeout / protocol::kTicksPerTimeout; }
  void on_tick();
  Duration look_every() const { return std::min(tick(), kRetryMax / 4); }
  void probe(PeerId peer);
  void look(PeerId peer);
  void lost(PeerId peer, const std::string& why);
  void bury(std::unique_ptr<ShellLink> link);
  void close(std::unique_ptr<ShellLink> link);
  void report_up(const ShellLink& link) {
    callbacks.on_link({link.peer(), LinkState::kUp, {}, link.serial(), microseconds(link)});
  }
  Counters count() const;

  const Options options;
  const Callbacks callbacks;
  const uint32_t lanes_max;  // of each link
  net::Loop loop{"pccl-data"};

  // On the loop only.
  Identity identity;
  Engine engine;
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<net::Timer> ticks;
  std::map<PeerId, Dial> dials;
  std::list<std::unique_ptr<ShellLink>> strangers;  // oldest first
  std::map<PeerId, Link> links;
  std::vector<PeerId> neighbours;
  std::map<PeerId, uint32_t> learnt;               // how many lanes of a link to a peer pay
  std::map<PeerId, Probe> probes;                  // only of links that are up
  std::vector<std::unique_ptr<ShellLink>> buried;  // closed, perhaps on the stack still
  uint32_t serials = 0;                            // of connections that we have made
  uint64_t numbers = 0;                            // of probes
};

Shell::Inside::Inside(Options given, Callbacks called)
    : options(std::move(given)),
      callbacks(std::move(called)),
      lanes_max(lanes_affordable()),
      engine({.on_transferred = callbacks.on_transferred,
              .on_progressed = callbacks.on_progressed,
              .on_agreed = callbacks.on_agreed,
              .on_drained = callbacks.on_drained,
              .on_fail_link = [this](PeerId peer, const std::string& why) { lost(peer, why); },
              .on_failed = callbacks.on_failed}) {
  if (options.lanes <= lanes_max) return;
  log(LogLevel::kWarning,
      "PCCL_LANES is " + std::to_string(options.lanes) + ", but this process may have " +
          std::to_string(net::descriptors_max()) + " files open, so that " +
          std::to_string(lanes_max) + " connections to a neighbour are made: raise it (ulimit -n)");
}

// ---- Listening and dialling ----

void Shell::Inside::listen(const std::string& host) {
  Result<std::unique_ptr<net::Listener>> opened = Status{Code::kSystem, "no port to try", {}};
  for (uint32_t port = options.port_first; port <= options.port_last; ++port) {
    opened = net::Listener::open(loop, {host, static_cast<uint16_t>(port)},
                                 [this](net::Socket socket) { accepted(std::move(socket)); });
    if (opened.ok()) break;
  }
  if (!opened.ok() && options.port_last > 0) {
    const std::string range =
        std::to_string(options.port_first) + "-" + std::to_string(options.port_last);
    const std::string& why = opened.status().message;
    opened = Status{Code::kSystem, why + " (of PCCL_PORT_RANGE " + range + " none is free)", {}};
  }
  if (!opened.ok()) return callbacks.on_listening(opened.status());
  listener = std::move(opened.value());
  ticks = std::make_unique<net::Timer>(loop, [this] { on_tick(); });
  ticks->arm(monotonic_now() + tick());
  callbacks.on_listening(listener->port());
}

void Shell::Inside::dial(PeerId peer, const net::Endpoint& at, uint32_t dead_serial) {
  const auto up = links.find(peer);
  if (up != links.end()) {
    if (up->second.first().serial() > dead_serial) return report_up(up->second.first());
    drop(peer);
  }
  Dial& dial = dials[peer];
  const bool under_way =
      dial.connector != nullptr || (dial.link != nullptr && dial.link->serial() > dead_serial);
  if (under_way && dial.at == at) return;  // to begin again would take the other's end down
  close(std::move(dial.link));
  dial.at = at;
  dial.retry = std::make_unique<net::Timer>(loop, [this, peer] { attempt(peer); });
  attempt(peer);
}

void Shell::Inside::attempt(PeerId peer) {
  Dial& dial = dials.at(peer);
  dial.connector = std::make_unique<net::Connector>(
      loop, dial.at, options.peer_timeout / 2,
      [this, peer](Result<net::Socket> result) { connected(peer, std::move(result)); });
}

void Shell::Inside::connected(PeerId peer, Result<net::Socket> result) {
  Dial& dial = dials.at(peer);
  const LinkFault fault = dial.connector->fault();
  dial.connector.reset();
  if (!result.ok()) return unreachable(peer, result.status().message, fault);
  const auto on_introduced = [this, peer](ShellLink&) { join(std::move(dials.at(peer).link)); };
  const auto on_ended = [this, peer](const ShellLink& link, const Status& why) {
    if (is_up(link)) return lost(peer, why.message);
    bury(std::move(dials.at(peer).link));
    unreachable(peer, why.message, link.fault());  // `link` is buried, not gone
  };
  dial.link = std::make_unique<ShellLink>(loop, std::move(result.value()), identity,
                                          ShellLink::Target{peer, ++serials}, net::text(dial.at),
                                          ShellLink::Callbacks{on_introduced, on_ended});
}

void Shell::Inside::unreachable(PeerId peer, const std::string& why, LinkFault fault) {
  dials.at(peer).retry->arm(monotonic_now() + std::min(tick(), kRetryMax));
  callbacks.on_link({peer, LinkState::kUnreachable, why, 0, 0, fault});
}

void Shell::Inside::forget(PeerId peer) {
  end_dial(peer);
  drop(peer);
}

void Shell::Inside::drop(PeerId peer) {
  probes.erase(peer);
  const auto at = links.find(peer);
  if (at == links.end()) return;
  Link link = std::move(at->second);
  links.erase(at);
  engine.link_down(peer);
  for (auto& lane : link.lanes) close(std::move(lane));
  for (Opening& opening : link.opening) close(std::move(opening.lane));
}

// ---- Further lanes ----

// Of a link that we have dialled to a neighbour; what is missing is opened, all at once.
void Shell::Inside::widen(PeerId peer) {
  const auto at = links.find(peer);
  const bool near = std::find(neighbours.begin(), neighbours.end(), peer) != neighbours.end();
  if (at == links.end() || !near || !at->second.dialled) return;
  Link& link = at->second;
  const size_t wanted = lanes_open(link.way);
  while (link.lanes.size() + link.opening.size() < wanted) open_lane(peer, link);
}

void Shell::Inside::crowd(PeerId peer) {
  const auto at = links.find(peer);
  if (at == links.end()) return;
  for (const auto& lane : at->second.lanes) lane->crowd(neighbours.size() > 1);
}

uint32_t Shell::Inside::lanes_open(Duration way) const {
  if (options.lanes > 0) return std::min(options.lanes, lanes_max);
  return way < options.long_way ? 1 : lanes_max;
}

uint32_t Shell::Inside::lanes_at_first(PeerId peer, Duration way) const {
  if (options.lanes > 0) return options.lanes;
  const auto known = learnt.find(peer);
  return known != learnt.end() ? known->second : LaneChoice::first(way);
}

// A lane that has come up. Near ones all carry, as fast as they can, and are not counted.
void Shell::Inside::carry(Link& link, ShellLink& lane) {
  const bool far = link.way >= options.long_way;
  lane.suit(far ? net::Way::kLong : net::Way::kNear, options.congestion);
  lane.crowd(neighbours.size() > 1);
  if (!link.traffic) return;
  link.traffic->add(lane);
  lane.watch([this, &link](const ShellLink& sent) {
    if (!link.traffic->chunk_sent(sent, monotonic_now())) return;
    learnt[sent.peer()] = link.traffic->lanes_wanted();
    engine.rest(sent.peer(), link.traffic->resting());
  });
}

void Shell::Inside::open_lane(PeerId peer, Link& link) {
  const auto opening = link.opening.emplace(link.opening.end());
  opening->connector =
      std::make_unique<net::Connector>(loop, *link.dialled, options.peer_timeout / 2,
                                       [this, peer, opening](Result<net::Socket> result) {
                                         opened(peer, opening, std::move(result));
                                       });
}

// `opening` is still there: it goes with its link, and its connector with it.
void Shell::Inside::opened(PeerId peer, std::list<Opening>::iterator opening,
                           Result<net::Socket> result) {
  Link& link = links.at(peer);
  if (!result.ok()) {
    link.opening.erase(opening);
    return;
  }
  const auto on_introduced = [this, peer, opening](ShellLink&) {
    Link& widened = links.at(peer);
    std::unique_ptr<ShellLink> lane = std::move(opening->lane);
    widened.opening.erase(opening);
    join_further(widened, std::move(lane));
  };
  const auto on_ended = [this, peer, opening](const ShellLink& lane, const Status& why) {
    if (is_up(lane)) return lost(peer, why.message);
    bury(std::move(opening->lane));
    links.at(peer).opening.erase(opening);
  };
  opening->lane = std::make_unique<ShellLink>(loop, std::move(result.value()), identity,
                                              ShellLink::Target{peer, link.first().serial(), true},
                                              net::text(*link.dialled),
                                              ShellLink::Callbacks{on_introduced, on_ended});
}

// ---- Those who dial us ----

void Shell::Inside::accepted(net::Socket socket) {
  const bool scarce = net::is_scarce(socket.fd(), kStrangersWhenScarce);
  const size_t room = scarce ? kStrangersWhenScarce : net::strangers_max(kStrangersMax);
  while (strangers.size() >= room) {
    strangers.front()->close();
    bury(std::move(strangers.front()));
    strangers.pop_front();
  }
  const std::string address = socket.peer_host();
  const auto at = strangers.emplace(strangers.end());
  const auto on_introduced = [this, at](ShellLink&) { introduced(at); };
  const auto on_ended = [this, at](const ShellLink& link, const Status& why) {
    if (is_up(link)) return lost(link.peer(), why.message);
    bury(std::move(*at));
    strangers.erase(at);
  };
  *at = std::make_unique<ShellLink>(loop, std::move(socket), identity, ShellLink::Target{}, address,
                                    ShellLink::Callbacks{on_introduced, on_ended});
}

// When both dial each other at once, the connection that the higher id made stays.
void Shell::Inside::introduced(std::list<std::unique_ptr<ShellLink>>::iterator stranger) {
  std::unique_ptr<ShellLink> link = std::move(*stranger);
  strangers.erase(stranger);
  const PeerId peer = link->peer();
  if (link->further()) {
    const auto up = links.find(peer);
    const bool known = up != links.end() && up->second.first().serial() == link->serial() &&
                       up->second.lanes.size() < lanes_max;
    return known ? join_further(up->second, std::move(link)) : close(std::move(link));
  }
  const auto dial = dials.find(peer);
  const bool crossed = dial != dials.end() && dial->second.link != nullptr && identity.self > peer;
  if (!crossed && !links.contains(peer)) return join(std::move(link));
  close(std::move(link));
  if (!crossed) probe(peer);
}

// ---- Links ----

bool Shell::Inside::is_up(const ShellLink& link) const {
  const auto at = links.find(link.peer());
  if (at == links.end()) return false;
  const auto& lanes = at->second.lanes;
  return std::any_of(lanes.begin(), lanes.end(),
                     [&](const auto& lane) { return lane.get() == &link; });
}

void Shell::Inside::join(std::unique_ptr<ShellLink> link) {
  const PeerId peer = link->peer();
  Link& joined = links[peer];
  joined.lanes.push_back(std::move(link));
  const auto dial = dials.find(peer);
  if (dial != dials.end()) joined.dialled = dial->second.at;
  const bool dialled = end_dial(peer);
  ShellLink& first = *joined.lanes.front();
  joined.way = first.path().least;
  if (joined.way >= options.long_way)
    joined.traffic.emplace(joined.way, lanes_at_first(peer, joined.way), options.lanes > 0);
  carry(joined, first);
  first.join(engine);
  if (!dialled) return;
  report_up(first);
  widen(peer);
}

void Shell::Inside::join_further(Link& link, std::unique_ptr<ShellLink> lane) {
  ShellLink& joined = *link.lanes.emplace_back(std::move(lane));
  carry(link, joined);
  joined.join(engine);
  if (link.traffic) engine.rest(joined.peer(), link.traffic->resting());
}

// Returns whether there was one.
bool Shell::Inside::end_dial(PeerId peer) {
  const auto at = dials.find(peer);
  if (at == dials.end()) return false;
  close(std::move(at->second.link));
  dials.erase(at);
  return true;
}

// However late this is, it counts once: what has arrived meanwhile is read before the next.
void Shell::Inside::on_tick() {
  ticks->arm(monotonic_now() + tick());
  std::vector<PeerId> silent;
  for (const auto& [peer, link] : links) {
    bool heard = true;
    for (const auto& lane : link.lanes) heard &= lane->tick();
    if (!heard) silent.push_back(peer);
  }
  for (const PeerId peer : silent) {
    lost(peer,
         "nothing was heard on it for " + pccl::text(tick() * protocol::kTicksPerLinkSilence));
  }
}

// The peer dials again, so its end may be gone though nobody told ours.
void Shell::Inside::probe(PeerId peer) {
  if (probes.contains(peer)) return;
  ShellLink& link = *links.at(peer).lanes.front();
  Probe& probe = probes.try_emplace(peer, Probe{protocol::Probe(++numbers), nullptr}).first->second;
  link.ping(probe.state.number());
  probe.timer = std::make_unique<net::Timer>(loop, [this, peer] { look(peer); });
  probe.timer->arm(monotonic_now() + look_every());
}

void Shell::Inside::look(PeerId peer) {
  Probe& probe = probes.at(peer);
  const ShellLink& link = *links.at(peer).lanes.front();
  using Finding = protocol::Probe::Finding;
  const Finding finding = probe.state.look(link.last_pong());
  if (finding == Finding::kUnknown) return probe.timer->arm(monotonic_now() + look_every());
  const auto own = probes.extract(peer);  // lives until this returns
  if (finding == Finding::kDead) lost(peer, "it does not answer on this link, and dials again");
}

void Shell::Inside::lost(PeerId peer, const std::string& why) {
  const auto at = links.find(peer);
  if (at == links.end()) return;
  const protocol::LinkReport report{peer, LinkState::kDown, why, at->second.first().serial()};
  drop(peer);
  callbacks.on_link(report);
}

void Shell::Inside::close(std::unique_ptr<ShellLink> link) {
  if (link != nullptr) link->close();
  bury(std::move(link));
}

void Shell::Inside::bury(std::unique_ptr<ShellLink> link) {
  if (link == nullptr) return;
  if (buried.empty()) loop.post([this] { buried.clear(); });
  buried.push_back(std::move(link));
}

Shell::Counters Shell::Inside::count() const {
  Counters counters{.engine = engine.counters(), .links = {}};
  for (const auto& [peer, link] : links) {
    Counters::Link& sum = counters.links.emplace_back();
    sum.peer = peer;
    sum.serial = link.first().serial();
    sum.lanes = static_cast<uint32_t>(link.lanes.size());
    const protocol::LaneBits resting = link.traffic ? link.traffic->resting() : 0;
    sum.lanes_used = sum.lanes - static_cast<uint32_t>(std::popcount(resting));
    sum.round_trip = link.way;
    for (const auto& lane : link.lanes) {
      const net::Lane::Counters one = lane->counters();
      sum.bytes_sent += one.bytes_sent;
      sum.bytes_received += one.bytes_received;
      sum.send_calls += one.send_calls;
      sum.receive_calls += one.receive_calls;
    }
  }
  return counters;
}

// ---- Shell: the door to the data loop ----

Shell::Shell(Options options, Callbacks callbacks)
    : inside_(std::make_unique<Inside>(std::move(options), std::move(callbacks))) {}

Shell::~Shell() { inside_->loop.stop(); }

void Shell::listen(PeerId self, uint64_t run_id, const std::string& host) {
  if (!inside_->loop.status().ok()) return inside_->callbacks.on_listening(inside_->loop.status());
  inside_->loop.post([inside = inside_.get(), self, run_id, host] {
    inside->identity = {self, run_id, machine_id()};
    inside->listen(host);
  });
}

void Shell::dial(PeerId peer, const net::Endpoint& at, uint32_t dead_serial) {
  inside_->loop.post(
      [inside = inside_.get(), peer, at, dead_serial] { inside->dial(peer, at, dead_serial); });
}

void Shell::forget(PeerId peer) {
  inside_->loop.post([inside = inside_.get(), peer] { inside->forget(peer); });
}

void Shell::begin_epoch(Epoch epoch, std::vector<PeerId> peers, std::vector<PeerId> neighbours) {
  inside_->loop.post([inside = inside_.get(), epoch, peers = std::move(peers),
                      neighbours = std::move(neighbours)] {
    inside->engine.begin_epoch(epoch, peers);
    inside->neighbours = neighbours;
    for (const PeerId peer : neighbours) {
      inside->widen(peer);
      inside->crowd(peer);
    }
  });
}

void Shell::post(Task task, Memory memory) {
  inside_->loop.post(
      [inside = inside_.get(), task = std::move(task), memory = std::move(memory)]() mutable {
        inside->engine.post(std::move(task), std::move(memory));
      });
}

void Shell::end(OpEnded end) {
  inside_->loop.post([inside = inside_.get(), end] { inside->engine.end(end); });
}

void Shell::done(OpKey op) {
  inside_->loop.post([inside = inside_.get(), op] { inside->engine.done(op); });
}

Shell::Counters Shell::counters() {
  if (inside_->loop.on_loop()) return inside_->count();
  // The promise belongs to the task alone: a loop that drops the task breaks it, and the wait ends.
  auto promise = std::make_shared<std::promise<Counters>>();
  std::future<Counters> answer = promise->get_future();
  inside_->loop.post([inside = inside_.get(), promise = std::move(promise)] {
    promise->set_value(inside->count());
  });
  answer.wait();
  try {
    return answer.get();
  } catch (const std::future_error&) {
    return {};
  }
}

}  // namespace pccl::ring
