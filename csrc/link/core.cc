#include "csrc/link/core.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/transitions.h"
#include "csrc/link/lane_controller.h"

namespace pccl::link {

using protocol::LinkState;

namespace {

const Transitions<LinkCore::Phase, 5> kTransitions(
    "a lane", text,
    {{LinkCore::Phase::kConnecting, LinkCore::Phase::kHandshaking,
      "Connected; Accepted, and the lane is pending", "SendHello if dialled"},
     {LinkCore::Phase::kConnecting, LinkCore::Phase::kGone,
      "Refused; Forget, or a Dial that voids it; another connection of the peer is up; its link is "
      "down",
      "ReportLink unreachable after the last address, and a retry; Close"},
     {LinkCore::Phase::kHandshaking, LinkCore::Phase::kUp,
      "HelloReceived, a valid one; for a crossing connection: our own attempts have failed",
      "SendHello if accepted and not answered yet, LaneUp, ReportLink up if it is the first"},
     {LinkCore::Phase::kHandshaking, LinkCore::Phase::kGone,
      "HelloReceived, an invalid one; none in time; Failed; Forget, or a Dial that voids it; "
      "another connection of the peer is up; its link is down; too many are pending",
      "Close unless failed, ReportLink unreachable after the last address, and a retry"},
     {LinkCore::Phase::kUp, LinkCore::Phase::kGone,
      "Failed; silence; Suspected; Forget, or a Dial that voids it; no answer, and the peer dials "
      "again; too many peers are not named",
      "LinkDown, Close for all lanes, ReportLink down unless a Dial voids it"}});

// Longest pause before an unreachable peer is tried again; it is one tick if that is shorter.
constexpr Duration kRetryMax = std::chrono::seconds(1);
// A private address that really is close by answers within this time.
constexpr Duration kAttemptDelay = std::chrono::milliseconds(250);

// The lanes of links that are not between neighbours: all together, in lanes_max of a link.
constexpr size_t kNeighboursOfAll = 4;

constexpr const char* kGivenUp =
    "small packets arrive, but larger ones do not, not even those of 576 bytes: does a router drop "
    "them?";

// As in messages. A known RTT is rounded up, because 0 means unknown.
uint32_t microseconds(Duration rtt) {
  const auto count = std::chrono::ceil<std::chrono::microseconds>(rtt).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(count, 0, UINT32_MAX));
}

}  // namespace

const char* text(LinkCore::Phase phase) {
  switch (phase) {
    case LinkCore::Phase::kConnecting: return "connecting";
    case LinkCore::Phase::kHandshaking: return "handshaking";
    case LinkCore::Phase::kUp: return "up";
    case LinkCore::Phase::kGone: return "gone";
  }
  return "unknown";
}

void LinkCore::enter(Lane& lane, Phase next) { lane.phase = kTransitions.step(lane.phase, next); }

void LinkCore::step(const Event& event, Instant now, Effects& effects) {
  PCCL_ASSERT(effects_ == nullptr && now_ <= now);
  effects_ = &effects;
  now_ = now;
  const size_t before = effects.size();
  std::visit([this](const auto& what) { on(what); }, event);
  effects_ = nullptr;
  check_closed(effects, before);
#ifndef NDEBUG
  check();
#endif
}

void LinkCore::be(const Identity& identity) {
  PCCL_ASSERT(lanes_.empty() && dialling_.empty());
  identity_ = identity;
  if (identity.accepting) keys_.accept_with(*identity.accepting);
}

std::optional<protocol::Key> LinkCore::key_of(const protocol::LaneIntroduction& shown) const {
  return is_used(shown) ? std::nullopt : key_of(shown.identity);
}

// Whether the dialler has completed a proof for this connection or for a later one: its serial
// numbers only grow.
bool LinkCore::is_used(const protocol::LaneIntroduction& shown) const {
  const auto completed = completed_.find(shown.identity.dialler);
  return !shown.further && completed != completed_.end() && shown.serial <= completed->second;
}

// A link that is up keeps its credential, so that it can get further lanes after restarts of the
// master.
std::optional<protocol::Key> LinkCore::key_of(const protocol::LaneIdentity& identity) const {
  const auto link = links_.find(identity.dialler);
  if (link != links_.end() && link->second.credential &&
      link->second.credential->identity == identity)
    return link->second.credential->key;
  return keys_.find(identity, identity_.self, identity_.run_id);
}

// ---- Dialling ----

void LinkCore::on(const Dial& event) {
  PCCL_ASSERT(event.peer && !event.at.empty() && event.credential.has_value() == keys_.required());
  const PeerId peer = event.peer;
  name(peer);
  const auto up = links_.find(peer);
  if (up != links_.end()) {
    if (up->second.serial > event.dead_serial) return report_up(peer, up->second);
    drop(peer);
  }
  Dialling& dial = dialling_[peer];
  dial.dead_serial = std::max(dial.dead_serial, event.dead_serial);
  if (dial.crossing && lanes_.at(*dial.crossing).serial <= dial.dead_serial) close(*dial.crossing);
  // An attempt continues unless this Dial makes it void. A new attempt would take down the other
  // end of the old one.
  const bool elsewhere = dial.at != event.at;
  bool closed = false;
  for (const ConnectionId id : std::exchange(dial.attempts, {})) {
    if (!elsewhere && is_in_progress(id, event.dead_serial)) {
      dial.attempts.push_back(id);
    } else {
      close(id);
      closed = true;
    }
  }
  dial.at = event.at;
  dial.credential = event.credential;
  if (!dial.attempts.empty()) return;
  // A round continues also while it waits for its turn to try further addresses.
  if (elsewhere || closed || !is_exploring(peer)) begin_round(peer);
}

bool LinkCore::is_in_progress(ConnectionId attempt, uint32_t dead_serial) const {
  const Lane& lane = lanes_.at(attempt);
  PCCL_ASSERT(lane.dialled && !lane.further);
  return lane.phase == Phase::kConnecting || lane.serial > dead_serial;
}

void LinkCore::begin_round(PeerId peer) {
  stop_exploring(peer);
  Dialling& dial = dialling_.at(peer);
  PCCL_ASSERT(dial.attempts.empty() && !dial.at.empty());
  dial.tried = dial.at;
  const auto reached = reached_.find(peer);
  if (reached != reached_.end()) {
    const auto at = std::find(dial.tried.begin(), dial.tried.end(), reached->second);
    if (at != dial.tried.end()) std::rotate(dial.tried.begin(), at, at + 1);
  }
  dial.begun = 0;
  dial.why.clear();
  dial.fault = LinkFault::kOther;
  dial.retry.reset();
  const bool inner = is_private(dial.tried[0].host);
  const Duration alone = knows_first(peer, dial) ? connect_timeout() / 2
                         : inner                 ? kAttemptDelay
                                                 : connect_timeout();
  dial.more_at = now_ + alone;
  if (!given_up(peer)) return attempt(peer, dial);
  dial.begun = dial.tried.size();
  dial.why = kGivenUp;
  dial.fault = LinkFault::kOnlySmallPackets;
  go_on(peer);
}

// Starts the attempts that may start now. At the end of a round, reports the peer as unreachable.
void LinkCore::go_on(PeerId peer) {
  Dialling& dial = dialling_.at(peer);
  PCCL_ASSERT(!dial.retry);
  while (dial.begun < dial.tried.size() && may_explore(peer, dial)) attempt(peer, dial);
  if (!dial.attempts.empty() || dial.begun < dial.tried.size()) return;
  PCCL_ASSERT(!dial.crossing && !links_.contains(peer));
  dial.retry = now_ + std::min(tick(), kRetryMax);
  emit(ReportLink{{peer, LinkState::kUnreachable, dial.why, dial.dead_serial, 0, dial.fault}});
  stop_exploring(peer);
}

// Whether the next address may be tried now. If another peer's turn is first, this one queues up.
bool LinkCore::may_explore(PeerId peer, const Dialling& dial) {
  PCCL_ASSERT(dial.begun < dial.tried.size());
  const bool first_alone = dial.begun == 1 && !dial.attempts.empty() && now_ < dial.more_at;
  const size_t most = kAttemptsMax + (tries_known(peer, dial) ? 1 : 0);
  if (first_alone || dial.attempts.size() >= most) return false;
  // A peer that was reached before does not wait for others, which may never be reached.
  if (reached_.contains(peer)) return true;
  if (!is_exploring(peer)) exploring_.push_back(peer);
  return exploring_.front() == peer;
}

// Whether only the first of several addresses is being tried. The others start at `more_at`, even
// if nothing fails.
bool LinkCore::tries_first_only(PeerId peer, const Dialling& dial) const {
  return dial.begun == 1 && dial.tried.size() > 1 && !dial.attempts.empty() && !is_exploring(peer);
}

// Whether the first address of this round has worked before.
bool LinkCore::knows_first(PeerId peer, const Dialling& dial) const {
  PCCL_ASSERT(!dial.tried.empty());
  const auto reached = reached_.find(peer);
  return reached != reached_.end() && reached->second == dial.tried[0];
}

// Whether that address is being tried.
bool LinkCore::tries_known(PeerId peer, const Dialling& dial) const {
  return knows_first(peer, dial) &&
         std::any_of(dial.attempts.begin(), dial.attempts.end(),
                     [&](ConnectionId id) { return lanes_.at(id).at == dial.tried[0]; });
}

bool LinkCore::is_exploring(PeerId peer) const {
  return std::find(exploring_.begin(), exploring_.end(), peer) != exploring_.end();
}

// The turn passes to the next peer in the queue.
void LinkCore::stop_exploring(PeerId peer) {
  const bool was_first = !exploring_.empty() && exploring_.front() == peer;
  std::erase(exploring_, peer);
  if (was_first && !exploring_.empty()) go_on(exploring_.front());
}

void LinkCore::attempt(PeerId peer, Dialling& dial) {
  PCCL_ASSERT(dial.begun < dial.tried.size() && !dial.retry);
  const ConnectionId id = new_lane();
  Lane& lane = lanes_[id];
  lane.dialled = true;
  lane.peer = peer;
  lane.at = dial.tried[dial.begun++];
  lane.credential = dial.credential;
  lane.address = text(lane.at);
  dial.attempts.push_back(id);
  // All addresses together take no longer than a single one. An address that worked before has all
  // of that time: TCP sends a lost SYN again after 1 s and 3 s.
  const size_t further = dial.tried.size() - 1;
  const auto parts = static_cast<int>(dial.begun == 1 ? 1 : (further + 1) / kAttemptsMax);
  PCCL_ASSERT(parts > 0);
  const Duration whole = connect_timeout();
  const bool all_of_it = further == 0 || (dial.begun == 1 && knows_first(peer, dial));
  emit(Connect{id, peer, lane.at, all_of_it ? whole : whole / 2 / parts, segment(peer),
               lane.credential});
}

void LinkCore::on(const Connected& event) {
  const auto at = lanes_.find(event.lane);
  if (at == lanes_.end()) return;  // closed in the meantime
  Lane& lane = at->second;
  PCCL_ASSERT(lane.dialled && lane.further == (lane.serial > 0));
  enter(lane, Phase::kHandshaking);
  if (!lane.further) {
    // The numbers of other peers follow only our own count: the claims of one peer about its own
    // connections must not use up the numbers of all.
    const bool higher = outranks(lane.peer);
    lane.serial = protocol::next_serial(last_serial(lane.peer), higher);
    serials_ = protocol::next_serial(serials_, higher);
    given_[lane.peer] = lane.serial;
  }
  lane.hello_by = now_ + protocol::kHelloTimeout;
  emit(SendHello{event.lane, false, hello(lane.peer, lane.serial, lane.further)});
}

// The last serial number that is known of this peer's connections, or of our own.
uint32_t LinkCore::last_serial(PeerId peer) const {
  uint32_t last = serials_;
  const auto dial = dialling_.find(peer);
  if (dial != dialling_.end()) last = std::max(last, dial->second.dead_serial);
  const auto given = given_.find(peer);
  return given == given_.end() ? last : std::max(last, given->second);
}

// The connection is gone already.
void LinkCore::ended(ConnectionId id, const std::string& why, LinkFault fault) {
  const Lane lane = lanes_.at(id);
  if (lane.phase == Phase::kUp) return lost(lane.peer, why);
  forget_lane(id);
  if (lane.dialled && !lane.further) failed(lane, id, why, fault);
}

void LinkCore::failed(const Lane& attempt, ConnectionId id, const std::string& why,
                      LinkFault fault) {
  Dialling& dial = dialling_.at(attempt.peer);
  const size_t erased = std::erase(dial.attempts, id);
  PCCL_ASSERT(erased == 1);
  if (dial.crossing && !is_handshaking(dial)) return join(*dial.crossing);
  dial.why += (dial.why.empty() ? "" : "; ") + why;
  if (attempt.at == dial.at[0]) dial.fault = fault;
  if (closed_by_known_address(attempt, fault) && dial.closed_rounds < kClosedRoundsMax) {
    ++dial.closed_rounds;
    dial.begun = dial.tried.size();
  }
  go_on(attempt.peer);
}

bool LinkCore::closed_by_known_address(const Lane& attempt, LinkFault fault) const {
  const auto reached = reached_.find(attempt.peer);
  return reached != reached_.end() && reached->second == attempt.at &&
         attempt.phase == Phase::kHandshaking && fault == LinkFault::kOther;
}

bool LinkCore::is_handshaking(const Dialling& dial) const {
  return std::any_of(dial.attempts.begin(), dial.attempts.end(), [this](ConnectionId id) {
    return lanes_.at(id).phase == Phase::kHandshaking;
  });
}

void LinkCore::on(const Forget& event) {
  keys_.forget(event.peer);
  end_dial(event.peer);
  lost(event.peer, "it was to be forgotten");
  reached_.erase(event.peer);
  given_.erase(event.peer);
  completed_.erase(event.peer);
  named_.erase(event.peer);
  const auto narrow = narrow_.extract(event.peer);
  if (!narrow.empty() && narrow.mapped().announced()) emit(NarrowPathGone{event.peer});
  limit_accepted();
}

void LinkCore::end_dial(PeerId peer) {
  const auto at = dialling_.find(peer);
  if (at == dialling_.end()) return;
  const Dialling dial = at->second;
  for (const ConnectionId attempt : dial.attempts) close(attempt);
  if (dial.crossing) close(*dial.crossing);
  dialling_.erase(peer);
  stop_exploring(peer);
}

// ---- Links ----

void LinkCore::join(ConnectionId id) {
  const Lane& lane = lanes_.at(id);
  const PeerId peer = lane.peer;
  const auto [at, fresh] = links_.try_emplace(peer);
  PCCL_ASSERT(fresh && !lane.further);
  Link& link = at->second;
  link.serial = lane.serial;
  link.rtt = lane.rtt;
  link.lanes.push_back(id);
  link.credential = lane.credential;
  const auto dial = dialling_.find(peer);
  if (dial != dialling_.end()) {
    std::erase(dial->second.attempts, id);
    if (dial->second.crossing == id) dial->second.crossing.reset();
    end_dial(peer);
  }
  if (lane.dialled) link.dialled = reached_[peer] = lane.at;
  up(id, link);
  report_up(peer, link);
  add_lanes(peer);
  note_unnamed(peer);
}

// A newcomer may dial us before the master has named it. Anybody can claim to be one, so only a
// limited number of such links exists at a time.
void LinkCore::note_unnamed(PeerId peer) {
  if (named_.contains(peer)) return;
  PCCL_ASSERT(links_.contains(peer));
  unnamed_.push_back(peer);
  if (unnamed_.size() > protocol::kUnnamedLinksMax)
    lost(unnamed_.front(), "too many peers connect that the master has not named here");
}

void LinkCore::join_further(ConnectionId id) {
  const Lane& lane = lanes_.at(id);
  Link& link = links_.at(lane.peer);
  PCCL_ASSERT(lane.further && lane.serial == link.serial);
  const size_t erased = link.opening.erase(id);
  PCCL_ASSERT((erased == 1) == lane.dialled);
  link.lanes.push_back(id);
  up(id, link);
}

void LinkCore::up(ConnectionId id, const Link& link) {
  Lane& lane = lanes_.at(id);
  PCCL_ASSERT(link.lanes.back() == id && lane.further == (link.lanes.size() > 1));
  enter(lane, Phase::kUp);
  lane.keepalive = protocol::KeepaliveTimer(protocol::kTicksPerLinkTimeout, options_.peer_timeout);
  if (!lane.dialled && answered_early_.erase(id) == 0)
    emit(SendHello{id, true, hello(lane.peer, lane.serial, lane.further)});
  const bool wan = link.rtt >= options_.wan_rtt_min;
  emit(LaneUp{.lane = id,
              .peer = lane.peer,
              .serial = link.serial,
              .further = lane.further,
              .same_machine = lane.same_machine,
              .rtt = link.rtt,
              .wan = wan,
              .lanes_at_first = lanes_at_first(lane.peer, link.rtt),
              .lanes_fixed = options_.lanes > 0});
}

void LinkCore::report_up(PeerId peer, const Link& link) {
  emit(ReportLink{{peer, LinkState::kUp, {}, link.serial, microseconds(link.rtt), {}}});
}

void LinkCore::drop(PeerId peer) {
  checking_.erase(peer);
  const auto at = links_.find(peer);
  if (at == links_.end()) return;
  const Link link = std::move(at->second);
  weigh_progress(peer, link);
  links_.erase(at);
  std::erase(unnamed_, peer);
  emit(LinkDown{peer});
  for (const ConnectionId lane : link.lanes) close(lane);
  for (const ConnectionId lane : link.opening) close(lane);
}

void LinkCore::lost(PeerId peer, const std::string& why) {
  const auto at = links_.find(peer);
  if (at == links_.end()) return;
  const uint32_t serial = at->second.serial;
  drop(peer);
  emit(ReportLink{{peer, LinkState::kDown, why, serial, 0, {}}});
}

void LinkCore::close(ConnectionId lane) {
  emit(Close{lane});
  forget_lane(lane);
}

void LinkCore::forget_lane(ConnectionId id) {
  const auto at = lanes_.find(id);
  PCCL_ASSERT(at != lanes_.end());
  kTransitions.step(at->second.phase, Phase::kGone);
  PCCL_ASSERT(at->second.phase != Phase::kUp || !links_.contains(at->second.peer));
  if (!at->second.dialled) std::erase(pending_, id);
  answered_early_.erase(id);
  const auto link = at->second.further ? links_.find(at->second.peer) : links_.end();
  if (link != links_.end()) link->second.opening.erase(id);
  const auto dial = dialling_.find(at->second.peer);
  if (dial != dialling_.end() && dial->second.crossing == id) dial->second.crossing.reset();
  lanes_.erase(at);
}

// ---- Further lanes ----

void LinkCore::on(const NeighboursKnown& event) {
  neighbours_ = event.peers;
  for (const PeerId peer : neighbours_) name(peer);
  for (const PeerId peer : neighbours_) add_lanes(peer);
}

// The links to all peers together get as many lanes in this way as those to four neighbours.
void LinkCore::on(const LanesWanted& event) {
  const auto at = links_.find(event.peer);
  if (at == links_.end()) return;
  const Duration rtt = at->second.rtt;
  const auto share = static_cast<uint32_t>(
      std::max(kNeighboursOfAll * options_.lanes_max / links_.size(), size_t{1}));
  const uint32_t wanted = event.measured ? share : lanes_at_first(event.peer, rtt);
  open_lanes(event.peer, at->second, std::min({wanted, lanes_open(rtt), share}));
}

// If the peer is a neighbour.
void LinkCore::add_lanes(PeerId peer) {
  const auto at = links_.find(peer);
  const bool is_neighbour =
      std::find(neighbours_.begin(), neighbours_.end(), peer) != neighbours_.end();
  if (at == links_.end() || !is_neighbour) return;
  open_lanes(peer, at->second, lanes_open(at->second.rtt));
}

// Opens all missing lanes together, if we have dialled the link.
void LinkCore::open_lanes(PeerId peer, Link& link, size_t wanted) {
  if (!link.dialled) return;
  while (link.lanes.size() + link.opening.size() < wanted) {
    const ConnectionId id = new_lane();
    Lane& lane = lanes_[id];
    lane.dialled = true;
    lane.peer = peer;
    lane.serial = link.serial;
    lane.further = true;
    lane.at = *link.dialled;
    lane.address = text(*link.dialled);
    lane.credential = link.credential;
    link.opening.insert(id);
    emit(Connect{id, peer, *link.dialled, connect_timeout(), segment(peer), link.credential});
  }
}

uint32_t LinkCore::lanes_open(Duration rtt) const {
  // The process can afford lanes_max for each of two neighbours; more neighbours share them.
  const size_t neighbours = std::max<size_t>(neighbours_.size(), 2);
  const auto most =
      static_cast<uint32_t>(std::max(size_t{2} * options_.lanes_max / neighbours, size_t{1}));
  if (options_.lanes > 0) return std::min(options_.lanes, most);
  return rtt < options_.wan_rtt_min ? 1 : most;
}

uint32_t LinkCore::lanes_at_first(PeerId peer, Duration rtt) const {
  if (options_.lanes > 0) return options_.lanes;
  const auto known = learnt_.find(peer);
  return known != learnt_.end() ? known->second : LaneController::first(rtt);
}

// ---- Whether a link is alive ----

void LinkCore::on(const Tick& event) {
  const std::set<ConnectionId> received(event.received.begin(), event.received.end());
  for (const Progress& progress : event.progress) see(progress);
  std::vector<PeerId> silent;
  for (const auto& [peer, link] : links_) {
    bool too_long = false;
    for (const ConnectionId id : link.lanes) {
      Lane& lane = lanes_.at(id);
      lane.keepalive.beat();
      if (received.contains(id)) lane.keepalive.received();
      if (lane.keepalive.ping_due()) ping(id);
      too_long |= lane.keepalive.too_long();
    }
    if (too_long) silent.push_back(peer);
  }
  for (const PeerId peer : silent) {
    lost(peer, "nothing was received on it for " + text(tick() * protocol::kTicksPerLinkTimeout));
  }
}

void LinkCore::ping(ConnectionId id, uint64_t number) {
  PCCL_ASSERT(lanes_.at(id).phase == Phase::kUp);
  emit(SendPing{id, number});
  lanes_.at(id).keepalive.sent();
}

void LinkCore::on(const PongReceived& event) {
  const auto at = lanes_.find(event.lane);
  if (at == lanes_.end()) return;
  at->second.last_pong = std::max(at->second.last_pong, event.number);  // numbers only grow
}

Duration LinkCore::check_interval() const { return std::min(tick(), kRetryMax / 4); }

// The peer dials again, so its end of the link may be gone without any notice here.
void LinkCore::check_liveness(PeerId peer) {
  if (checking_.contains(peer)) return;
  const protocol::LivenessCheck check_liveness(++checks_made_);
  ping(links_.at(peer).lanes.front(), check_liveness.number());
  checking_.emplace(peer, LivenessChecking{check_liveness, now_ + check_interval()});
}

// ---- Whether data arrives ----

void LinkCore::see(const Progress& progress) {
  const auto at = lanes_.find(progress.lane);
  if (at == lanes_.end() || at->second.phase != Phase::kUp) return;
  Lane& lane = at->second;
  lane.progress = progress;
  lane.stuck_beats = progress.arrived ? 0 : lane.stuck_beats + 1;
  const auto narrow = narrow_.find(lane.peer);
  if (!progress.arrived || narrow == narrow_.end()) return;
  if (narrow->second.arrived(progress.segment))
    emit(SmallerHelped{progress.lane, progress.segment});
}

// Called before the link ends. If no lane made progress and some lane was stuck long enough, the
// path counts as one that drops large packets.
void LinkCore::weigh_progress(PeerId peer, const Link& link) {
  PCCL_ASSERT(links_.contains(peer));
  uint32_t stuck = 0;
  const int enough =
      protocol::kTicksWithoutProgress * protocol::beats_per_tick(options_.peer_timeout);
  for (const ConnectionId id : link.lanes) {
    const Lane& lane = lanes_.at(id);
    if (!lane.progress) continue;
    if (lane.progress->arrived) return;
    if (lane.stuck_beats >= enough) stuck = std::max(stuck, lane.progress->segment);
  }
  if (stuck == 0) return;
  narrow_[peer].ended_without_progress(stuck);
  limit_accepted();
}

// TCP accepts no limit for an established connection, and a listener does not know who will
// connect. So the listener has the limit of the narrowest path. The other end learns this limit
// while its connection is being made, and obeys it too.
void LinkCore::limit_accepted() {
  uint32_t least = 0;
  for (const auto& [peer, controller] : narrow_) {
    const uint32_t one = controller.segment();
    if (one > 0) least = least == 0 ? one : std::min(least, one);
  }
  if (std::exchange(accepted_segment_, least) != least) emit(LimitAccepted{least});
}

// ---- Time ----

void LinkCore::on(const TimePassed&) {
  std::vector<ConnectionId> late;
  for (const auto& [id, lane] : lanes_) {
    if (is_silent(lane) && lane.hello_by <= now_) late.push_back(id);
  }
  for (const ConnectionId id : late) {
    const std::string address = lanes_.at(id).address;
    emit(Close{id});
    ended(id, address + ": it did not introduce itself in time", LinkFault::kNoAnswer);
  }
  std::vector<PeerId> due;
  for (const auto& [peer, dial] : dialling_) {
    const bool more = tries_first_only(peer, dial) && dial.more_at <= now_;
    if (dial.retry ? *dial.retry <= now_ : more) due.push_back(peer);
  }
  for (const PeerId peer : due) dialling_.at(peer).retry ? begin_round(peer) : go_on(peer);
  std::vector<PeerId> dead;
  for (auto at = checking_.begin(); at != checking_.end();) {
    auto& [peer, checking] = *at;
    if (checking.look > now_) {
      ++at;
      continue;
    }
    const ConnectionId first = links_.at(peer).lanes.front();
    const auto finding = checking.state.look(lanes_.at(first).last_pong);
    checking.look = now_ + check_interval();
    if (finding == protocol::LivenessCheck::Finding::kDead) dead.push_back(peer);
    at =
        finding == protocol::LivenessCheck::Finding::kUnknown ? std::next(at) : checking_.erase(at);
  }
  for (const PeerId peer : dead) lost(peer, "it does not answer on this link, and dials again");
  PCCL_DCHECK(deadline().value_or(now_ + Duration{1}) > now_);  // all due work is done
}

std::optional<Instant> LinkCore::deadline() const {
  std::optional<Instant> first;
  const auto also = [&first](Instant at) { first = first ? std::min(*first, at) : at; };
  for (const auto& [id, lane] : lanes_) {
    if (is_silent(lane)) also(lane.hello_by);
  }
  for (const auto& [peer, dial] : dialling_) {
    if (dial.retry) also(*dial.retry);
    if (tries_first_only(peer, dial)) also(dial.more_at);
  }
  for (const auto& [peer, checking] : checking_) also(checking.look);
  return first;
}

}  // namespace pccl::link
