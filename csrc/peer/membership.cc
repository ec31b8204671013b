#include "csrc/peer/membership.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <set>
#include <utility>

#include "csrc/base/transitions.h"
#include "csrc/protocol/codec.h"
#include "csrc/protocol/frames.h"
#include "csrc/protocol/shares.h"

namespace pccl::peer {
namespace {

// A leg of a direct all-reduce with at most this many bytes needs only one lane.
constexpr uint64_t kBytesForOneLane = 256 << 10;

// Maximum number of links. It has room for all members and for newcomers that wait. A master that
// asks for more is faulty.
constexpr size_t kLinksMax = 8 * protocol::kMembersMax;

// For each message from the master: the phases of this peer that allow it. The column `registered`
// covers kWelcomed too: the master of a new connection does not know whether this peer is welcomed
// or registered.
struct Allowed {
  bool introducing, registered, member, resuming;
};
constexpr bool x = true, o = false;
constexpr std::array<Allowed, std::variant_size_v<protocol::Message>> kAllowed = {{
    // introducing, registered, member, resuming
    {o, o, o, o},  // Hello
    {x, x, o, x},  // Reject
    {x, o, o, o},  // Welcome
    {o, o, o, o},  // Register
    {x, x, x, x},  // Ping
    {x, x, x, x},  // Pong
    {o, x, x, o},  // Dial
    {o, x, x, o},  // Forget
    {o, o, o, o},  // LinkReport
    {o, x, x, o},  // Notice
    {o, x, x, o},  // EpochStart
    {o, o, x, o},  // FreezeRequest
    {o, o, o, o},  // StateReport
    {o, o, x, o},  // Verdicts
    {o, o, x, o},  // EpochEnd
    {o, o, o, o},  // Begin
    {o, o, o, o},  // Done
    {o, o, o, o},  // AbortRequest
    {o, o, o, o},  // Vote
    {o, o, o, o},  // JointAbort
    {o, o, x, o},  // Answer
    {o, o, x, o},  // SyncPlan
    {o, o, o, o},  // Fetched
    {o, o, o, o},  // Leave
    {o, x, x, x},  // Kicked
    {o, o, o, o},  // Resume
    {o, o, o, x},  // Resumed
    {o, o, x, o},  // AbortProposal
    {o, o, o, o},  // AbortAnswer
    {o, x, x, o},  // Farewell
    {o, o, o, o},  // AwaitSend
    {o, o, x, o},  // SendBegun
    {o, o, o, o},  // LinkRates
    {o, o, o, o},  // Fetching
    {o, o, x, o},  // ListRequest
    {o, o, o, o},  // StateList
    {o, o, x, o},  // Probe
    {o, o, o, o},  // ProbeReport
    {o, o, o, o},  // Blocked
    {o, o, o, o},  // Watch
    {o, o, o, o},  // Snapshot
    {o, o, x, o},  // Observe
    {o, o, o, o},  // Telemetry
    {o, o, o, o},  // DialBack
    {o, o, o, o},  // DialedBack
    {o, o, o, o},  // Regroup
    {o, o, x, o},  // Regrouped
}};

const char* text(Phase phase) {
  switch (phase) {
    case Phase::kIdle: return "idle";
    case Phase::kConnecting: return "connecting";
    case Phase::kHandshaking: return "handshaking";
    case Phase::kWelcomed: return "welcomed";
    case Phase::kRegistered: return "registered";
    case Phase::kMember: return "a member";
    case Phase::kEnding: return "ending";
    case Phase::kGone: return "gone";
  }
  return "unknown";
}

// A reconnection is not a phase: from kWelcomed on, a broken connection is resumed, and the phase
// stays.
const Transitions<Phase, 13> kPhaseTransitions(
    "a peer in its run", text,
    {{Phase::kIdle, Phase::kConnecting, "join is called", "ConnectMaster"},
     {Phase::kConnecting, Phase::kHandshaking, "connected to the master",
      "Hello; Listen if the master is elsewhere; Register once the listener is open"},
     {Phase::kHandshaking, Phase::kConnecting, "the connection closed"},
     {Phase::kHandshaking, Phase::kWelcomed, "Welcome", "AcceptAs; Listen unless it was asked for"},
     {Phase::kWelcomed, Phase::kRegistered, "the listener is open",
      "Register unless it has followed the Hello"},
     {Phase::kRegistered, Phase::kMember, "EpochStart", "the join succeeds"},
     {Phase::kIdle, Phase::kEnding, "leave is called"},
     {Phase::kConnecting, Phase::kEnding,
      "leave is called; no master is found in time; the master does not know the token, or breaks "
      "the "
      "protocol",
      "the join fails"},
     {Phase::kHandshaking, Phase::kEnding,
      "leave is called; Reject; no Welcome in time; the master breaks the protocol",
      "the join fails"},
     {Phase::kWelcomed, Phase::kEnding,
      "leave is called; Reject; Kicked; Farewell; no port to listen on; not admitted in time; the "
      "master is lost or breaks the protocol",
      "Leave if called or not admitted in time; the join fails"},
     {Phase::kRegistered, Phase::kEnding,
      "leave is called; Reject; Kicked; Farewell; not admitted in time; the master is lost or "
      "breaks the protocol",
      "Leave if called or not admitted in time; the join fails"},
     {Phase::kMember, Phase::kEnding,
      "leave is called; Reject; Kicked; the master is lost, does not know the token any more, or "
      "breaks the protocol repeatedly",
      "Leave if it was called; EndOp for each operation"},
     {Phase::kEnding, Phase::kGone, "the last borrowed tensors are drained", "Gone"}});

Status farewell() { return {Code::kMasterLost, protocol::kFarewellText, {}}; }

std::string names(const std::vector<protocol::Member>& members) {
  std::string out;
  for (size_t i = 0; i < members.size() && i < protocol::kRanksNamedMax; ++i) {
    if (i > 0) out += ", ";
    out += protocol::text(members[i]);
  }
  if (members.size() > protocol::kRanksNamedMax) {
    out += " and " + std::to_string(members.size() - protocol::kRanksNamedMax) + " more";
  }
  return out;
}

// The reason why an EpochStart makes no sense for the peer `self` with the topology `now`. Empty:
// it makes sense.
std::string refuse(const protocol::EpochStart& start, PeerId self, const Topology& now) {
  if (start.epoch <= now.epoch) return "follows epoch " + text(now.epoch);
  const bool continues = now.epoch && start.generation == now.generation;
  if (start.generation != start.epoch && !continues) {
    return "is of generation " + text(start.generation);
  }
  if (start.members.size() > protocol::kMembersMax) return "has too many members";
  std::set<PeerId> peers;
  for (const protocol::Member& member : start.members) peers.insert(member.peer);
  if (peers.size() != start.members.size()) return "has a member twice";
  if (!peers.contains(self)) return "does not have this peer among its members";
  const std::set<uint32_t> ring(start.ring.begin(), start.ring.end());
  if (start.ring.size() != peers.size() || ring.size() != peers.size() ||
      *ring.rbegin() != peers.size() - 1) {
    return "has a ring that is no permutation of its ranks";
  }
  if (start.one_shot_bytes > protocol::kOneShotBytesMax ||
      (start.one_shot_bytes > 0 && start.members.size() > protocol::kOneShotMembersMax)) {
    return "has one-shot operations of " + std::to_string(start.one_shot_bytes) + " bytes";
  }
  if (!start.shares.empty() && !protocol::are_shares(start.shares, start.members.size())) {
    return "has shares that are not one per rank with the sum " +
           std::to_string(protocol::kSharesTotal);
  }
  if (start.direct.from >= start.direct.to) {
    return "has direct all-reduces from " + std::to_string(start.direct.from) + " to " +
           std::to_string(start.direct.to) + " bytes";
  }
  return {};
}

}  // namespace

void Membership::enter(Phase next) { phase_ = kPhaseTransitions.step(phase_, next); }

Status Membership::check(const protocol::Message& message, bool resuming) const {
  const Allowed& allowed = kAllowed[message.index()];
  bool fine = false;
  if (resuming) {
    fine = allowed.resuming;
  } else if (phase_ == Phase::kHandshaking) {
    fine = allowed.introducing;
  } else if (phase_ == Phase::kWelcomed || phase_ == Phase::kRegistered) {
    fine = allowed.registered;
  } else {
    fine = phase_ == Phase::kMember && allowed.member;
  }
  if (fine) return {};
  return violation(std::string(protocol::name(message)) + " while this peer was " +
                   (resuming ? "resuming" : text(phase_)));
}

void Membership::welcome(const protocol::Welcome& welcome) {
  PCCL_ASSERT(phase_ == Phase::kWelcomed && !self() && welcome.peer);
  welcome_ = welcome;
}

bool Membership::accept_incarnation(uint32_t incarnation) {
  PCCL_ASSERT(welcomed());
  if (incarnation < welcome_.incarnation) return false;
  welcome_.incarnation = incarnation;
  return true;
}

Status Membership::begin(const protocol::EpochStart& start) {
  PCCL_ASSERT(phase_ == Phase::kRegistered || phase_ == Phase::kMember);
  const std::string why = refuse(start, self(), topology_);
  if (!why.empty()) return violation("epoch " + text(start.epoch) + " " + why);
  const std::vector<PeerId> unseen = seen_.left();  // members that the application still sees
  topology_ = {start.epoch,
               start.generation,
               0,
               start.members,
               start.ring,
               start.joined,
               start.left,
               start.one_shot_bytes,
               std::chrono::microseconds(start.rtt),
               protocol::is_wan(start),
               start.shares,
               start.direct};
  topology_.rank = *rank_of(self());
  for (const PeerId peer : unseen) {
    if (start.generation == start.epoch &&
        std::find(start.left.begin(), start.left.end(), peer) == start.left.end())
      topology_.left.push_back(peer);
  }
  const bool reconfigures = start.generation != start.epoch;
  PCCL_ASSERT(!reconfigures || continues_);
  seen_.begin(topology_, reconfigures);
  frozen_ = ended_ = continues_ = needs_reconfiguration_ = false;
  for (auto& [peer, link] : links_) link.lost.reset();
  if (!reconfigures) broken_ = {};
  forget_non_members();
  std::vector<PeerId> others;
  for (const protocol::Member& member : start.members) {
    if (member.peer != self()) others.push_back(member.peer);
  }
  context_.emit(BeginEpoch{start.epoch, topology_.rank, std::move(others), neighbours()});
  const LogLevel level = std::exchange(warned_, false) ? LogLevel::kWarning : LogLevel::kInfo;
  context_.note(level, LogEvent::kEpochBegins,
                "epoch " + text(start.epoch) + " begins: this process is rank " +
                    std::to_string(topology_.rank) + " of " + std::to_string(world_size()));
  return {};
}

// This process can afford a limited number of lanes, and its neighbours share them. In a direct
// all-reduce, two members exchange data if at least one of them owns a block: then they are
// neighbours. But if all direct all-reduces are small, one lane to each member is enough for them,
// and the neighbours in the ring get all further lanes.
std::vector<PeerId> Membership::neighbours() const {
  const uint32_t world = world_size();
  const uint32_t ring_index = ring_index_of(topology_.rank);
  PCCL_ASSERT(peer_at(ring_index) == self());
  std::vector<PeerId> neighbours;
  const auto add = [&](PeerId peer) {
    const bool known = std::find(neighbours.begin(), neighbours.end(), peer) != neighbours.end();
    if (peer != self() && !known) neighbours.push_back(peer);
  };
  const std::vector<uint16_t>& shares = topology_.shares;
  const bool many_lanes = topology_.direct.to / world > kBytesForOneLane;
  for (uint32_t rank = 0; many_lanes && rank < shares.size(); ++rank) {
    if (shares[rank] + shares[topology_.rank] > 0) add(topology_.members[rank].peer);
  }
  add(peer_at(ring_index + world - 1));
  add(peer_at(ring_index + 1));
  return neighbours;
}

// A slice takes half of an RTT for each hop around the ring, and the steps are granted in their
// order. To fill the link in this time, each of the slots of a step needs as many bytes of scratch
// as the link carries in half of an RTT. All bytes that arrive here leave to downstream, so the
// rate of that link is enough.
uint64_t Membership::scratch_bytes(uint32_t slots) const {
  if (!topology_.wan || world_size() < 3) return 0;
  const auto link = links_.find(peer_at(ring_index_of(topology_.rank) + 1));
  if (link == links_.end()) return 0;
  const double per_hop = static_cast<double>(link->second.rate) * to_seconds(topology_.rtt) / 2;
  const double most = static_cast<double>(context_.options.scratch_bytes_max);
  return static_cast<uint64_t>(std::min(per_hop * slots, most));
}

void Membership::topology_asked(bool has_operation_in_flight) {
  const Topology* const shown = seen_.ask(context_.settings.on_peer_loss, has_operation_in_flight);
  if (shown) context_.emit(ShowTopology{*shown});
}

Status Membership::freeze(const protocol::FreezeRequest& ask) {
  PCCL_ASSERT(phase_ == Phase::kMember);
  if (ask.epoch != epoch() || ended_)
    return violation("FreezeRequest for epoch " + text(ask.epoch));
  if (!frozen_) {
    const std::string why =
        ask.lost.empty()
            ? "nobody is lost: there is a new link or plan, or the master is about to end"
            : names(ask.lost) + " lost";
    context_.note(LogLevel::kInfo, LogEvent::kEpochEnding,
                  "epoch " + text(epoch()) + " is ending: " + why);
  }
  frozen_ = needs_reconfiguration_ = true;
  return {};
}

Status Membership::end(const protocol::EpochEnd& end, bool in_doubt) {
  PCCL_ASSERT(phase_ == Phase::kMember);
  if (end.epoch != epoch() || ended_) return violation("EpochEnd for epoch " + text(end.epoch));
  frozen_ = ended_ = true;
  continues_ = end.continuation != protocol::Continuation::kNothing;
  if (end.continuation == protocol::Continuation::kEverything) {
    if (end.lost.empty()) return {};
    warned_ = true;
    context_.note(LogLevel::kWarning, LogEvent::kLost, end.text + "; the others go on");
    return {};
  }
  if (!broken_.ok() && end.lost.empty()) return {};  // the group was broken before
  std::string why = protocol::kFarewellText;
  if (end.lost.empty() && (end.text.empty() || end.text == why)) {
    broken_ = farewell();
  } else {
    why = end.text.empty() ? names(end.lost) + " lost" : end.text;
    // The error of a call names the remedy. The line in the log does not: this peer may already be
    // doing it.
    broken_ = {Code::kPeerLost, why + "; call pccl.update_topology() and repeat",
               end.lost.empty() ? PeerId{} : end.lost.front().peer};
  }
  warned_ = in_doubt;
  context_.note(in_doubt ? LogLevel::kWarning : LogLevel::kInfo, LogEvent::kEpochEnds,
                "epoch " + text(epoch()) + " ended: " + why);
  return {};
}

void Membership::be_dismissed() {
  PCCL_ASSERT(phase_ == Phase::kMember && ended_ && !continues_ && !broken_.ok());
  broken_ = farewell();
}

std::optional<uint32_t> Membership::rank_of(PeerId peer) const {
  for (uint32_t rank = 0; rank < world_size(); ++rank) {
    if (topology_.members[rank].peer == peer) return rank;
  }
  return std::nullopt;
}

uint32_t Membership::ring_index_of(uint32_t rank) const {
  const auto at = std::find(topology_.ring.begin(), topology_.ring.end(), rank);
  PCCL_ASSERT(rank < world_size() && at != topology_.ring.end());
  return static_cast<uint32_t>(at - topology_.ring.begin());
}

PeerId Membership::peer_at(uint32_t ring_index) const {
  PCCL_ASSERT(world_size() > 0 && topology_.ring.size() == world_size());
  return topology_.members[topology_.ring[ring_index % world_size()]].peer;
}

// ---- Links ----

// After a reconnection the master repeats the Dials that it thinks are missing. If such a link is
// up, the answer is its last report.
Status Membership::dial(const protocol::Dial& dial) {
  PCCL_ASSERT(welcomed());
  if (links_.size() >= kLinksMax)
    return violation("more than " + std::to_string(kLinksMax) + " links");
  if (!dial.peer || dial.peer == self()) return violation("Dial of peer " + text(dial.peer));
  if (dial.credential.has_value() != secured())
    return violation(secured() ? "Dial without a credential" : "Dial with a credential");
  if (dial.credential && (dial.credential->identity.dialler != self() ||
                          dial.credential->identity.acceptor != dial.peer))
    return violation("Dial of " + text(dial.peer) + " with the credential of another link");
  if (dial.dead_serial > protocol::kSerialMax)
    return violation("connection " + std::to_string(dial.dead_serial) + " is to be dead");
  Reported& link = links_[dial.peer];
  link.of_master_before = false;
  link.named = true;
  auto& last = link.last;
  if (last && last->state == protocol::LinkState::kUp && last->serial > dial.dead_serial) {
    context_.send(*last);
    return {};
  }
  last.reset();
  context_.emit(DialPeer{dial});
  return {};
}

void Membership::forget(PeerId peer) {
  PCCL_ASSERT(welcomed());
  links_.erase(peer);
  if (rank_of(peer)) needs_reconfiguration_ = true;
  context_.emit(ForgetPeer{peer});
}

// Whether this peer sends this report. Both ends of a link know that it is up, but only the end
// that has made the link reports it, unless the master asks (dial()).
bool Membership::is_ours_to_say(const protocol::LinkReport& report) const {
  return report.state != protocol::LinkState::kUp ||
         protocol::made_by_higher(report.serial) == (self() > report.peer);
}

void Membership::link_changed(const protocol::LinkReport& report, bool tells) {
  const bool down = report.state == protocol::LinkState::kDown;
  if (down && !links_.contains(report.peer)) {
    // The link was forgotten here. But the master may still receive an earlier report that it is
    // up.
    if (tells) context_.send(report);
    return;
  }
  if (links_.size() >= kLinksMax / 2 && !links_.contains(report.peer)) forget_unnamed();
  auto& last = links_[report.peer].last;
  // The peer is dialled again every second. Only the first failure is news.
  const bool news = report.state != protocol::LinkState::kUnreachable || !last ||
                    last->state != protocol::LinkState::kUnreachable;
  last = report;
  if (report.state == protocol::LinkState::kUnreachable && rank_of(report.peer))
    needs_reconfiguration_ = true;
  if (down) lost_in_epoch(report);
  if (tells && news && is_ours_to_say(report)) context_.send(report);
}

// A restarted master does not know the connection that is lost. Later reports that the link is up
// again do not show this loss.
void Membership::lost_in_epoch(const protocol::LinkReport& report) {
  PCCL_ASSERT(report.state == protocol::LinkState::kDown);
  if (!rank_of(report.peer)) return;
  needs_reconfiguration_ = true;
  links_.at(report.peer).lost = report;
}

// Forgets links that are not up and that lead neither to a member nor to a peer that the master has
// named. Other processes may open and close links under many names, and the data plane limits only
// the number of links that are up at a time.
void Membership::forget_unnamed() {
  std::erase_if(links_, [this](const auto& at) {
    const Reported& link = at.second;
    const bool up = link.last && link.last->state == protocol::LinkState::kUp;
    return !up && !link.named && !rank_of(at.first);
  });
}

void Membership::repeat_reports() {
  PCCL_ASSERT(welcomed() && context_.linked);
  for (auto& [peer, link] : links_) {
    if (link.lost && link.lost != link.last) context_.send(*link.lost);
    if (link.last && is_ours_to_say(*link.last)) context_.send(*link.last);
    link.rate_told = 0;
  }
  tell_rates();
}

void Membership::rate_measured(const protocol::LinkRate& measured) {
  const auto link = links_.find(measured.peer);
  if (link != links_.end()) link->second.rate = measured.rate;
}

// A rate is news if it differs by more than a tenth: traffic does not measure it more exactly.
void Membership::tell_rates() {
  if (phase_ != Phase::kMember || !context_.linked) return;
  protocol::LinkRates rates;
  for (auto& [peer, link] : links_) {
    const uint64_t difference =
        std::max(link.rate, link.rate_told) - std::min(link.rate, link.rate_told);
    if (difference <= link.rate_told / 10 || !rank_of(peer)) continue;
    rates.links.push_back({peer, link.rate});
    link.rate_told = link.rate;
  }
  PCCL_ASSERT(rates.links.size() < protocol::kMembersMax);
  if (!rates.links.empty()) context_.send(std::move(rates));
}

void Membership::master_restarted(const std::vector<PeerId>& members) {
  for (auto& [peer, link] : links_) {
    link.of_master_before = std::find(members.begin(), members.end(), peer) == members.end();
  }
  forget_non_members();
}

void Membership::forget_non_members() {
  std::vector<PeerId> others;
  for (const auto& [peer, link] : links_) {
    if (link.of_master_before && !rank_of(peer)) others.push_back(peer);
  }
  for (const PeerId peer : others) forget(peer);
}

// ---- Invariants ----

void Membership::check() const {
  const bool admitted = static_cast<bool>(epoch());
  PCCL_ASSERT(phase_ >= Phase::kWelcomed || (!self() && !admitted));
  PCCL_ASSERT(!welcomed() || (self() && admitted == (phase_ == Phase::kMember)));
  if (admitted) check_epoch();
  PCCL_ASSERT(frozen_ || !ended_);
  PCCL_ASSERT(ended_ || !continues_);
  PCCL_ASSERT(!frozen_ || ended_ || needs_reconfiguration_);
  PCCL_ASSERT(!ended_ || continues_ || !broken_.ok());
  PCCL_ASSERT(broken_.ok() || broken_.code == Code::kPeerLost || broken_.code == Code::kMasterLost);
  for (const auto& [peer, link] : links_) {
    PCCL_ASSERT(!link.last || link.last->peer == peer);
    PCCL_ASSERT(!link.of_master_before || rank_of(peer));
  }
}

void Membership::check_epoch() const {
  const Topology& now = topology_;
  const uint32_t world = world_size();
  PCCL_ASSERT(world <= protocol::kMembersMax && now.rank < world);
  PCCL_ASSERT(now.members[now.rank].peer == self());
  for (uint32_t rank = 0; rank < world; ++rank) {
    PCCL_ASSERT(rank_of(now.members[rank].peer) == rank);  // no earlier rank has this peer
  }
  std::bitset<protocol::kMembersMax> in_ring;
  PCCL_ASSERT(now.ring.size() == world);
  for (const uint32_t rank : now.ring) {
    PCCL_ASSERT(rank < world && !in_ring[rank]);
    in_ring[rank] = true;
  }
  PCCL_ASSERT(now.one_shot_bytes <= protocol::kOneShotBytesMax);
  PCCL_ASSERT(now.one_shot_bytes == 0 || world <= protocol::kOneShotMembersMax);
  PCCL_ASSERT(now.shares.empty() || protocol::are_shares(now.shares, world));
  PCCL_ASSERT(now.direct.from < now.direct.to);
  PCCL_ASSERT(now.generation && now.generation <= now.epoch);
  seen_.check(self(), now);
}

}  // namespace pccl::peer
