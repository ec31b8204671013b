#include "csrc/link/core.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/link/hello_check.h"

namespace pccl::link {

using protocol::LinkState;

namespace {

constexpr const char* kGivenUp =
    "small packets arrive, but larger ones do not, not even those of 576 bytes: does a router drop "
    "them?";

// The RTT in a message. A known RTT is rounded up, because 0 means unknown.
uint32_t microseconds(Duration rtt) {
  const auto count = std::chrono::ceil<std::chrono::microseconds>(rtt).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(count, 0, UINT32_MAX));
}

}  // namespace

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

void LinkCore::set_identity(const Identity& identity) {
  PCCL_ASSERT(lanes_.empty() && dialling_.empty());
  identity_ = identity;
  if (identity.accepting) keys_.accept_with(*identity.accepting);
}

std::optional<protocol::Key> LinkCore::key_of(const protocol::LaneIntroduction& shown) const {
  return serials_.is_used(shown) ? std::nullopt : key_of(shown.identity);
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
    lost(peer, "the other end has lost this connection");
  }
  Dialling& dial = dialling_.try_emplace(peer, identity_.peer_timeout).first->second;
  dial.dead_serial = std::max(dial.dead_serial, event.dead_serial);
  if (dial.crossing && lanes_.at(*dial.crossing).serial <= dial.dead_serial) close(*dial.crossing);
  // An attempt continues unless this Dial makes it void. The link may be up already at the other
  // end of the attempt, and a new attempt would end it there.
  const bool elsewhere = dial.redial.addresses() != event.at;
  bool closed = false;
  for (const auto& [id, address] : std::vector(dial.redial.attempts())) {
    if (!elsewhere && is_in_progress(id, event.dead_serial)) continue;
    dial.redial.drop(id);
    close(id);
    closed = true;
  }
  dial.credential = event.credential;
  if (!dial.redial.attempts().empty()) return;
  // A pass continues also while it waits for its turn to try further addresses.
  if (elsewhere || closed || !is_exploring(peer)) begin_pass(peer, event.at);
}

bool LinkCore::is_in_progress(ConnectionId attempt, uint32_t dead_serial) const {
  const Lane& lane = lanes_.at(attempt);
  PCCL_ASSERT(lane.dialled && !lane.further);
  return lane.phase == Phase::kConnecting || lane.serial > dead_serial;
}

void LinkCore::begin_pass(PeerId peer, const std::vector<Endpoint>& addresses) {
  stop_exploring(peer);
  Dialling& dial = dialling_.at(peer);
  const auto reached = reached_.find(peer);
  dial.redial.begin_pass(
      addresses, reached == reached_.end() ? std::nullopt : std::optional(reached->second), now_);
  if (!narrow_.given_up(peer)) return attempt(peer, dial);
  dial.redial.give_up(kGivenUp, LinkFault::kOnlySmallPackets);
  continue_dial(peer);
}

// Starts the attempts that may start now. If all addresses have been tried and have failed, the
// pass is over, and the peer is reported as unreachable.
void LinkCore::continue_dial(PeerId peer) {
  Dialling& dial = dialling_.at(peer);
  Redial& redial = dial.redial;
  PCCL_ASSERT(!redial.pauses());
  while (redial.has_more() && may_explore(peer, dial)) attempt(peer, dial);
  if (!redial.attempts().empty() || redial.has_more()) return;
  PCCL_ASSERT(!dial.crossing && !links_.contains(peer));
  redial.pause(now_);
  emit(ReportLink{
      {peer, LinkState::kUnreachable, redial.why(), dial.dead_serial, 0, redial.fault()}});
  stop_exploring(peer);
}

// Whether the next address may be tried now. If it is another peer's turn, this peer joins the
// queue.
bool LinkCore::may_explore(PeerId peer, const Dialling& dial) {
  if (!dial.redial.may_attempt(now_)) return false;
  // A peer that was reached before does not wait for others, which may never be reached.
  if (reached_.contains(peer)) return true;
  if (!is_exploring(peer)) exploring_.push_back(peer);
  return exploring_.front() == peer;
}

bool LinkCore::is_exploring(PeerId peer) const {
  return std::find(exploring_.begin(), exploring_.end(), peer) != exploring_.end();
}

// The turn passes to the next peer in the queue.
void LinkCore::stop_exploring(PeerId peer) {
  const bool was_first = !exploring_.empty() && exploring_.front() == peer;
  std::erase(exploring_, peer);
  if (was_first && !exploring_.empty()) continue_dial(exploring_.front());
}

void LinkCore::attempt(PeerId peer, Dialling& dial) {
  const ConnectionId id = new_lane();
  const Duration timeout = dial.redial.attempt(id);
  Lane& lane = lanes_[id];
  lane.dialled = true;
  lane.peer = peer;
  lane.at = dial.redial.attempts().back().at;
  lane.credential = dial.credential;
  lane.address = text(lane.at);
  emit(Connect{id, peer, lane.at, timeout, narrow_.segment(peer), lane.credential});
}

void LinkCore::on(const Connected& event) {
  const auto at = lanes_.find(event.lane);
  if (at == lanes_.end()) return;  // closed in the meantime
  Lane& lane = at->second;
  PCCL_ASSERT(lane.dialled && lane.further == (lane.serial > 0));
  lane.enter(Phase::kHandshaking);
  if (!lane.further)
    lane.serial = serials_.next(lane.peer, dead_serial(lane.peer), outranks(lane.peer));
  lane.hello_by = now_ + protocol::kHelloTimeout;
  emit(SendHello{event.lane, false, hello_of(identity_, lane.peer, lane.serial, lane.further)});
}

// Connections of the peer with a serial number up to the returned number are dead.
uint32_t LinkCore::dead_serial(PeerId peer) const {
  const auto dial = dialling_.find(peer);
  return dial == dialling_.end() ? 0 : dial->second.dead_serial;
}

uint32_t LinkCore::last_serial(PeerId peer) const { return serials_.last(peer, dead_serial(peer)); }

// Handles the end of a connection, which is gone already.
void LinkCore::ended(ConnectionId id, const std::string& why, LinkFault fault) {
  const Lane lane = lanes_.at(id);
  if (lane.phase == Phase::kUp) return lost(lane.peer, why);
  forget_lane(id);
  if (lane.dialled && !lane.further) failed(lane, id, why, fault);
}

void LinkCore::failed(const Lane& attempt, ConnectionId id, const std::string& why,
                      LinkFault fault) {
  Dialling& dial = dialling_.at(attempt.peer);
  dial.redial.failed(id, why, fault, attempt.phase == Phase::kHandshaking);
  if (dial.crossing && !is_handshaking(dial)) return join(*dial.crossing);
  continue_dial(attempt.peer);
}

bool LinkCore::is_handshaking(const Dialling& dial) const {
  const std::vector<Redial::Attempt>& attempts = dial.redial.attempts();
  return std::any_of(attempts.begin(), attempts.end(), [this](const Redial::Attempt& attempt) {
    return lanes_.at(attempt.id).phase == Phase::kHandshaking;
  });
}

void LinkCore::on(const Forget& event) {
  keys_.forget(event.peer);
  end_dial(event.peer);
  lost(event.peer, "it was to be forgotten");
  reached_.erase(event.peer);
  serials_.forget(event.peer);
  named_.erase(event.peer);
  if (narrow_.forget(event.peer)) emit(NarrowPathGone{event.peer});
  limit_accepted();
}

void LinkCore::end_dial(PeerId peer) {
  const auto at = dialling_.find(peer);
  if (at == dialling_.end()) return;
  const Dialling dial = at->second;
  for (const auto& [attempt, address] : dial.redial.attempts()) close(attempt);
  if (dial.crossing) close(*dial.crossing);
  dialling_.erase(peer);
  stop_exploring(peer);
}

// ---- Connections from other processes, and hellos ----

// Answers before Accepted, so that the dialler gets the answer a round trip sooner. While we dial
// the same peer, its connection is not answered yet: otherwise each side could accept the
// connection of the other.
void LinkCore::on(const Proven& event) {
  PCCL_ASSERT(keys_.required());
  const auto& [identity, serial, further] = event.shown;
  const PeerId peer = identity.dialler;
  if (serials_.is_used(event.shown) ||
      !Serials::refusal(serial, last_serial(peer), !outranks(peer)).empty())
    return;
  const Choice choice = choose(peer, serial, further);
  const bool joins = choice == Choice::kJoin && !dialling_.contains(peer);
  if (!joins && choice != Choice::kJoinFurther) return;
  answered_early_[event.lane] = event.shown;
  emit(SendHello{event.lane, true, hello_of(identity_, peer, serial, further)});
}

void LinkCore::on(const Accepted& event) {
  PCCL_ASSERT(event.proven.has_value() == keys_.required());
  const ConnectionId id = event.first.lane;
  Lane lane;
  lane.address = event.address;
  lane.answered_early = answered_early_.erase(id) == 1;
  if (event.proven) {
    const std::optional<protocol::Key> key = key_of(event.proven->identity);
    if (!key) return emit(Close{id});  // refused since the handshake began
    lane.credential = {event.proven->identity, *key};
    lane.serial = event.proven->serial;
    lane.further = event.proven->further;
  }
  lane.enter(Phase::kHandshaking);
  const bool fresh = lanes_.emplace(id, std::move(lane)).second;
  PCCL_ASSERT(fresh && id.value <= lanes_made_);
  on(event.first);
}

// A refused connection is closed without an answer, so that an unknown process learns nothing from
// us.
void LinkCore::on(const HelloReceived& event) {
  const auto at = lanes_.find(event.lane);
  if (at == lanes_.end() || at->second.phase != Phase::kHandshaking) return;
  const bool again = !at->second.is_silent();
  const uint32_t last = event.hello ? last_serial(event.hello->self) : 0;
  const std::string why = again ? "it speaks before it was answered"
                                : refusal(identity_, at->second, event.hello, last);
  if (why.empty()) return on_valid_hello(event.lane, *event.hello, event.rtt);
  emit(Close{event.lane});
  ended(event.lane, at->second.address + ": " + why, LinkFault::kAnotherPeer);
}

void LinkCore::on_valid_hello(ConnectionId id, const protocol::LaneHello& hello, Duration rtt) {
  Lane& lane = lanes_.at(id);
  PCCL_ASSERT(lane.is_silent() && hello.self && hello.self != identity_.self && hello.serial > 0);
  PCCL_ASSERT(!lane.dialled || (lane.peer == hello.self && lane.serial == hello.serial));
  lane.same_machine = hello.machine == identity_.machine && identity_.machine != 0;
  lane.rtt = rtt;
  lane.peer = hello.self;
  lane.serial = hello.serial;
  lane.further = hello.further;
  if (!lane.dialled && lane.credential && !lane.further) serials_.completed(lane.peer, lane.serial);
  if (!lane.dialled) return on_hello_of_accepted(id);
  lane.further ? join_further(id) : join(id);
}

// If both sides dial each other at the same time, the connection from the higher id stays, if it
// gets established. The lower id answers it immediately. The higher id waits for the outcome of its
// own attempts.
LinkCore::Choice LinkCore::choose(PeerId peer, uint32_t serial, bool further) const {
  const auto link = links_.find(peer);
  if (further) {
    if (link == links_.end() || link->second.serial != serial) return Choice::kRefuse;
    const auto comes = [&](const auto& answered) {
      return answered.second.identity.dialler == peer && answered.second.further;
    };
    const auto coming = std::count_if(answered_early_.begin(), answered_early_.end(), comes);
    const size_t lanes = link->second.lanes.size() + static_cast<size_t>(coming);
    return lanes < options_.lanes_max ? Choice::kJoinFurther : Choice::kRefuse;
  }
  if (link != links_.end()) return Choice::kCheckLink;
  if (narrow_.given_up(peer)) return Choice::kRefuse;
  const auto dial = dialling_.find(peer);
  if (dial == dialling_.end()) return Choice::kJoin;
  if (serial <= dial->second.dead_serial) return Choice::kRefuse;
  return is_handshaking(dial->second) && outranks(peer) ? Choice::kWait : Choice::kJoin;
}

void LinkCore::on_hello_of_accepted(ConnectionId id) {
  const Lane& lane = lanes_.at(id);
  const PeerId peer = lane.peer;
  switch (choose(peer, lane.serial, lane.further)) {
    case Choice::kRefuse: return close(id);
    case Choice::kCheckLink: close(id); return check_liveness(peer);
    case Choice::kJoin: return join(id);
    case Choice::kJoinFurther: return join_further(id);
    case Choice::kWait: break;
  }
  if (lane.answered_early) return join(id);  // the link is up at the other end
  Dialling& dial = dialling_.at(peer);
  if (dial.crossing) close(*dial.crossing);
  dial.crossing = id;
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
    dial->second.redial.drop(id);
    if (dial->second.crossing == id) dial->second.crossing.reset();
    end_dial(peer);
  }
  if (lane.dialled) link.dialled = reached_[peer] = lane.at;
  up(id, link);
  report_up(peer, link);
  add_lanes(peer);
  note_unnamed(peer);
}

// A newcomer may dial us before the master has named it. Anybody can claim to be a newcomer, so
// only a limited number of such links exists at a time.
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
  lane.enter(Phase::kUp);
  lane.keepalive = protocol::KeepaliveTimer(protocol::kTicksPerLinkTimeout, identity_.peer_timeout);
  if (!lane.dialled && !lane.answered_early)
    emit(SendHello{id, true, hello_of(identity_, lane.peer, lane.serial, lane.further)});
  const bool wan = link.rtt >= options_.wan_rtt_min;
  emit(LaneUp{.lane = id,
              .peer = lane.peer,
              .serial = link.serial,
              .further = lane.further,
              .same_machine = lane.same_machine,
              .rtt = link.rtt,
              .wan = wan,
              .lanes_at_first = counts_.at_first(lane.peer, link.rtt),
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
  PCCL_ASSERT(at->second.phase != Phase::kUp || !links_.contains(at->second.peer));
  at->second.enter(Phase::kGone);
  const auto link = at->second.further ? links_.find(at->second.peer) : links_.end();
  if (link != links_.end()) link->second.opening.erase(id);
  const auto dial = dialling_.find(at->second.peer);
  if (dial != dialling_.end() && dial->second.crossing == id) dial->second.crossing.reset();
  lanes_.erase(at);
}

// ---- Further lanes ----

void LinkCore::on(const NeighboursKnown& event) {
  counts_.set_neighbours(event.peers);
  for (const PeerId peer : event.peers) name(peer);
  for (const PeerId peer : event.peers) add_lanes(peer);
}

void LinkCore::on(const LanesWanted& event) {
  const auto at = links_.find(event.peer);
  if (at == links_.end()) return;
  open_lanes(event.peer, at->second,
             counts_.wanted(event.peer, at->second.rtt, event.measured, links_.size()));
}

// Opens further lanes if the peer is a neighbour.
void LinkCore::add_lanes(PeerId peer) {
  const auto at = links_.find(peer);
  const std::vector<PeerId>& all = counts_.neighbours();
  const bool is_neighbour = std::find(all.begin(), all.end(), peer) != all.end();
  if (at == links_.end() || !is_neighbour) return;
  open_lanes(peer, at->second, counts_.open(at->second.rtt));
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
    emit(Connect{id, peer, *link.dialled, Redial::connect_timeout(identity_.peer_timeout),
                 narrow_.segment(peer), link.credential});
  }
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

Duration LinkCore::check_interval() const { return std::min(tick(), Redial::kPauseMax / 4); }

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
  if (progress.arrived && narrow_.arrived(lane.peer, progress.segment))
    emit(SmallerHelped{progress.lane, progress.segment});
}

// Called before the link ends. If no lane made progress and some lane was stuck long enough, the
// path counts as one that drops large packets.
void LinkCore::weigh_progress(PeerId peer, const Link& link) {
  PCCL_ASSERT(links_.contains(peer));
  uint32_t stuck = 0;
  const int enough =
      protocol::kTicksWithoutProgress * protocol::beats_per_tick(identity_.peer_timeout);
  for (const ConnectionId id : link.lanes) {
    const Lane& lane = lanes_.at(id);
    if (!lane.progress) continue;
    if (lane.progress->arrived) return;
    if (lane.stuck_beats >= enough) stuck = std::max(stuck, lane.progress->segment);
  }
  if (stuck == 0) return;
  narrow_.ended_without_progress(peer, stuck);
  limit_accepted();
}

void LinkCore::limit_accepted() {
  if (const auto segment = narrow_.news()) emit(LimitAccepted{*segment});
}

// ---- Time ----

void LinkCore::on(const TimePassed&) {
  std::vector<ConnectionId> late;
  for (const auto& [id, lane] : lanes_) {
    if (lane.is_silent() && lane.hello_by <= now_) late.push_back(id);
  }
  for (const ConnectionId id : late) {
    emit(Close{id});
    ended(id, lanes_.at(id).address + ": it did not introduce itself in time",
          LinkFault::kNoAnswer);
  }
  std::vector<PeerId> due;
  for (const auto& [peer, dial] : dialling_) {
    const auto at = deadline(peer, dial);
    if (at && *at <= now_) due.push_back(peer);
  }
  for (const PeerId peer : due) {
    const Redial& redial = dialling_.at(peer).redial;
    redial.pauses() ? begin_pass(peer, redial.addresses()) : continue_dial(peer);
  }
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
    if (lane.is_silent()) also(lane.hello_by);
  }
  for (const auto& [peer, dial] : dialling_) {
    if (const auto due = deadline(peer, dial)) also(*due);
  }
  for (const auto& [peer, checking] : checking_) also(checking.look);
  return first;
}

// A peer that waits for its turn needs no time.
std::optional<Instant> LinkCore::deadline(PeerId peer, const Dialling& dial) const {
  return is_exploring(peer) ? std::nullopt : dial.redial.deadline();
}

}  // namespace pccl::link
