#include "tests/sim/faults.h"

#include <algorithm>

namespace pccl::sim {
namespace {

constexpr Duration kTick = kPeerTimeout / protocol::kTicksPerTimeout;
// Peers try to reconnect at least once a second. After this time all of them are back.
constexpr Duration kMasterStable = std::chrono::milliseconds(1500);
// Longest outage that costs no link and no connection, even after two ticks without data.
constexpr Duration kHarmless = 2 * kTick;
// Time from the end of an outage to the next outage of the same machine. By then all others have
// received something from it.
constexpr Duration kDeactivate = 5 * kTick;
// Time after which everybody knows which peers are lost, and all others have their links again.
constexpr Duration kAftermath = 3 * kPeerTimeout;

// Total weight of the first two kinds.
constexpr uint32_t kComingAndGoing = 12;

// Whether the step leads into a state that does not last. A fault right after it meets that state.
bool is_brief(const std::string& step) {
  constexpr const char* kBrief[] = {"draining", "starting", "freezing", "ending",
                                    "broken",   "fetching", "recording"};
  return std::any_of(std::begin(kBrief), std::end(kBrief),
                     [&](const char* state) { return step.ends_with(state); });
}

}  // namespace

Faults::Faults(World& world, Cluster& cluster, Coverage* coverage, uint64_t seed)
    : world_(world),
      cluster_(cluster),
      coverage_(coverage),
      chance_(seed),
      lasting_(world.event_loop()) {
  world_.on_state_sent = [this](PeerNode& sender) {
    if (!sender_dies_) return;
    cluster_.choose_immortals();
    if (!cluster_.may_lose(sender)) return;
    sender_dies_ = false;
    const Duration soon = chance_.duration(Duration{0}, std::chrono::milliseconds(3));
    world_.event_loop().after(soon, [this, &sender] {
      if (!sender.alive() || !cluster_.may_lose(sender)) return;
      count("the sender of shared state killed");
      sender.kill("killed while it sends shared state");
    });
  };
}

Faults::~Faults() {
  world_.on_state_sent = nullptr;
  if (coverage_ != nullptr) coverage_->on_step = nullptr;
}

const std::vector<Faults::Kind>& Faults::kinds() {
  static const std::vector<Kind> kKinds = {
      {"killed", 6, &Faults::kill},
      {"newcomer", 6, &Faults::newcomer},
      {"stopped", 5, &Faults::stop_process},
      {"slow", 3, &Faults::slow_down},
      {"clock jumped", 2, &Faults::jump_clock},
      {"late", 8, &Faults::be_late},
      {"left", 1, &Faults::leave},
      {"its token was revoked", 1, &Faults::revoke},
      {"newcomer that cannot be reached", 2, &Faults::unreachable_newcomer},
      {"newcomer that nobody can dial", 3, &Faults::closed_newcomer},
      {"newcomer of which one address works", 3, &Faults::newcomer_of_two_addresses},
      {"newcomer killed while joining", 3, &Faults::newcomer_dies},
      {"newcomer left while joining", 2, &Faults::newcomer_leaves},
      {"newcomer that cannot listen", 1, &Faults::newcomer_cannot_listen},
      {"newcomer of another version", 1, &Faults::newcomer_is_foreign},
      {"newcomer that is wrong", 4, &Faults::mistaken_newcomer},
      {nullptr, 2, &Faults::sender_dies},
      {"master killed", 5, &Faults::kill_master},
      {"master stopped", 3, &Faults::stop_master},
      {"master's clock jumped", 1, &Faults::jump_master_clock},
      {"master connection reset", 3, &Faults::cut_master_connection},
      {"its token was replaced", 3, &Faults::renew},
      {"master connection half open", 3, &Faults::half_cut_master_connection},
      {"link reset", 4, &Faults::break_link},
      {"link half open", 3, &Faults::half_break_link},
      {"a stranger says hello", 3, &Faults::stranger},
      {"a stranger shows a wrong key", 3, &Faults::wrong_key},
      {"a stranger repeats a handshake", 3, &Faults::copied_handshake},
      {"two peers cut off from each other", 3, &Faults::cut_off_pair},
      {"two peers cut off one way", 3, &Faults::cut_off_pair_one_way},
      {"only small packets pass", 3, &Faults::narrow_pair},
      {"cut off from peers", 2, &Faults::cut_off_from_peers},
      {"cut off from the master", 2, &Faults::cut_off_from_master},
      {"cut off from the master one way", 3, &Faults::cut_off_from_master_one_way},
      {"cut off from all", 2, &Faults::cut_off_from_all},
      {nullptr, 12, &Faults::trigger}};
  return kKinds;
}

void Faults::cause_one() {
  cluster_.choose_immortals();
  uint32_t sum = 0;
  for (const Kind& kind : kinds()) sum += kind.weight;
  for (int tries = 0; tries < 20; ++tries) {
    uint64_t ticket = chance_.below(sum);
    // In mortal runs most faults are deaths and newcomers.
    if (cluster_.rules().mortal && !chance_.once_in(3)) ticket = chance_.below(kComingAndGoing);
    const Kind* chosen = kinds().data();
    while (ticket >= chosen->weight) ticket -= (chosen++)->weight;
    if (!(this->*chosen->cause)()) continue;
    if (chosen->name != nullptr) count(chosen->name);
    return;
  }
}

void Faults::stop() {
  paused_ = true;
  sender_dies_ = false;
  if (coverage_ != nullptr) coverage_->on_step = nullptr;
  lasting_.end_all();
}

// ---- Choice of peers and durations ----

PeerNode* Faults::any() {
  auto peers = cluster_.all();
  std::erase_if(peers, [this](PeerNode* peer) { return cluster_.group_of(*peer).quiet; });
  return peers.empty() ? nullptr : peers[chance_.below(peers.size())];
}

PeerNode* Faults::victim() {
  PeerNode* const peer = any();
  return peer != nullptr && cluster_.may_lose(*peer) ? peer : nullptr;
}

PeerNode* Faults::partner(const PeerNode& peer) {
  const auto others = cluster_.others(peer);
  return others.empty() ? nullptr : others[chance_.below(others.size())];
}

bool Faults::rested(const PeerNode& peer) const {
  const auto at = rested_.find(peer.port());
  return at == rested_.end() || at->second <= world_.event_loop().now();
}

void Faults::deactivate(const PeerNode& peer, Duration until) {
  Instant& at = rested_[peer.port()];
  at = std::max(at, world_.event_loop().now() + until);
}

// A random duration: shorter than the keepalive limit of a link, shorter than the limit of a master
// connection, or longer than both.
Duration Faults::outage(bool harmless) {
  if (harmless) return chance_.duration(Duration{0}, kHarmless);
  const bool short_one = chance_.once_in(3);
  return chance_.duration(Duration{0}, short_one ? 6 * kTick : 3 * kPeerTimeout);
}

void Faults::block(Network::Host from, Network::Host to, Duration duration, Duration longer) {
  world_.block(from, to);
  lasting_.add(duration, [this, from, to, longer] {
    world_.event_loop().after(longer, [this, from, to] { world_.lift(from, to); });
  });
}

// If the peer is still a member when the network heals, its links to spared members come back
// first. Otherwise two members with one dead link each would both be suspects. Another cut that
// kept the peer from a spared member for longer would have the same effect, so the peer rests.
void Faults::cut_off(PeerNode& peer, Duration duration) {
  cluster_.at_risk(peer, duration + kPeerTimeout + kAftermath);
  deactivate(peer, duration + kPeerTimeout + kDeactivate);
  for (PeerNode* other : cluster_.others(peer)) {
    const Duration longer = cluster_.spared(*other) ? Duration{0} : Duration{kPeerTimeout};
    block(peer.port(), other->port(), duration, longer);
    block(other->port(), peer.port(), duration, longer);
  }
}

// ---- Process faults ----

bool Faults::kill() {
  if (world_.options().fixed_world && chance_.once_in(2)) return leave();
  PeerNode* const peer = victim();
  if (peer == nullptr) return false;
  peer->kill("killed");
  return true;
}

// Like a laptop that is closed: for a moment, or until it is declared lost.
bool Faults::stop_process() {
  PeerNode* const peer = victim();
  if (peer == nullptr || peer->paused()) return false;
  const Duration pause = chance_.once_in(3) ? kTick : outage(false);
  cluster_.at_risk(*peer, pause + kAftermath);
  peer->stop();
  lasting_.add(pause, [peer] { peer->go_on(); });
  return true;
}

bool Faults::slow_down() {
  PeerNode* const peer = victim();
  if (peer == nullptr) return false;
  const Duration late = chance_.duration(std::chrono::milliseconds(1), kTick / 2);
  const Duration duration = chance_.duration(Duration{0}, kPeerTimeout);
  cluster_.at_risk(*peer, duration + kAftermath);
  peer->be_slow(late);
  lasting_.add(duration, [peer] { peer->be_slow(Duration{0}); });
  return true;
}

// The skipped time counts as time without a master, so the clock may not jump while there is none.
// Several jumps can add up to more than a peer waits for its master. A spared peer must never wait
// that long.
bool Faults::jump_clock() {
  PeerNode* const peer = any();
  if (peer == nullptr || !master_is_stable()) return false;
  const Instant now = world_.event_loop().now();
  if (cluster_.spared(*peer)) {
    Instant& next = next_jump_[peer->port()];
    if (next > now) return false;
    next = now + kAftermath;
  }
  peer->jump_clock(chance_.duration(Duration{0}, kPeerTimeout));
  return true;
}

// Its application computes for too long, while its process answers everybody.
bool Faults::be_late() {
  PeerNode* const peer = victim();
  const Duration limit = cluster_.rules().call_timeout;
  if (peer == nullptr || limit == Duration{0} || cluster_.unsure(*peer)) return false;
  cluster_.be_late(*peer, chance_.duration(Duration{0}, 4 * limit));
  lasting_.add(kAftermath, [peer] { Cluster::workload(*peer).be_late(Duration{0}); });
  return true;
}

bool Faults::leave() {
  PeerNode* const peer = victim();
  if (peer == nullptr) return false;
  cluster_.at_risk(*peer, kAftermath);
  peer->leave();
  return true;
}

// At any time: a master that was just started knows from its journal who came with the token, and
// without a master nobody can come back with it.
bool Faults::revoke() {
  PeerNode* const peer = victim();
  if (peer == nullptr || !world_.options().secured) return false;
  cluster_.at_risk(*peer, kAftermath);
  world_.revoke(*peer);
  return true;
}

// ---- Newcomers ----

bool Faults::newcomer() {
  if (!cluster_.room()) return false;
  cluster_.add(chance_.below(cluster_.groups().size()));
  return true;
}

// Only if the group has an immortal peer: some members must prevail over this newcomer.
bool Faults::unreachable_newcomer() {
  const size_t group = chance_.below(cluster_.groups().size());
  if (!cluster_.room() || cluster_.groups()[group].immortal == nullptr) return false;
  cluster_.add(group).unreachable = true;
  return true;
}

// The newcomer dials the others. Two newcomers of that kind could not be linked.
bool Faults::closed_newcomer() {
  const size_t group = chance_.below(cluster_.groups().size());
  const auto peers = cluster_.of_group(group);
  const auto closed = [](const PeerNode* peer) { return peer->closed; };
  if (!cluster_.room() || cluster_.groups()[group].immortal == nullptr) return false;
  if (std::any_of(peers.begin(), peers.end(), closed)) return false;
  cluster_.add(group).closed = true;
  return true;
}

// The first address leads nowhere, or to another peer. Some of these newcomers cannot dial, so
// their second address has to work. Two of the latter could not be linked.
bool Faults::newcomer_of_two_addresses() {
  const size_t group = chance_.below(cluster_.groups().size());
  if (!cluster_.room()) return false;
  constexpr uint16_t kNowhere = 60000;
  uint16_t first = kNowhere;
  PeerNode* const other = any();
  if (other != nullptr && chance_.once_in(2)) first = other->port();
  const auto peers = cluster_.of_group(group);
  const bool others_dial = std::none_of(peers.begin(), peers.end(),
                                        [](const PeerNode* peer) { return peer->cannot_dial; });
  PeerNode& peer = cluster_.add(group);
  peer.first_address = first;
  peer.cannot_dial = others_dial && chance_.once_in(2);
  return true;
}

// If the newcomer has just become a member, this is the loss of a member.
bool Faults::newcomer_dies() {
  const size_t group = chance_.below(cluster_.groups().size());
  if (!cluster_.room() || cluster_.rules().gentle || cluster_.groups()[group].quiet) return false;
  PeerNode& peer = cluster_.add(group);
  cluster_.at_risk(peer, kAftermath);
  peer.die_while_joining(static_cast<int>(chance_.between(1, 12)));
  return true;
}

bool Faults::newcomer_leaves() {
  const size_t group = chance_.below(cluster_.groups().size());
  if (!cluster_.room() || cluster_.rules().gentle || cluster_.groups()[group].quiet) return false;
  PeerNode& peer = cluster_.add(group, !chance_.once_in(4));  // if false, it never calls join
  cluster_.at_risk(peer, kAftermath);
  const Duration soon = chance_.duration(Duration{0}, std::chrono::milliseconds(10));
  world_.event_loop().after(soon, [&peer] { peer.leave(); });
  return true;
}

bool Faults::newcomer_cannot_listen() {
  if (!cluster_.room()) return false;
  PeerNode& peer = cluster_.add(chance_.below(cluster_.groups().size()));
  cluster_.at_risk(peer, kAftermath);
  peer.cannot_listen = true;
  return true;
}

bool Faults::newcomer_is_foreign() {
  if (!cluster_.room()) return false;
  PeerNode& peer = cluster_.add(chance_.below(cluster_.groups().size()));
  cluster_.at_risk(peer, kAftermath);
  peer.foreign = true;
  return true;
}

bool Faults::mistaken_newcomer() {
  const size_t group = chance_.below(cluster_.groups().size());
  if (!cluster_.room() || cluster_.rules().gentle || cluster_.groups()[group].quiet) return false;
  constexpr Mistake kOfState[] = {Mistake::kShape,  Mistake::kDtype,     Mistake::kExtraKey,
                                  Mistake::kAhead,  Mistake::kSendOnly,  Mistake::kPending,
                                  Mistake::kUpdate, Mistake::kOperation, Mistake::kSilent,
                                  Mistake::kHangs};
  constexpr Mistake kOthers[] = {Mistake::kPending, Mistake::kUpdate, Mistake::kDigest,
                                 Mistake::kSilent};
  const Mistake mistake = cluster_.rules().mortal ? kOthers[chance_.below(std::size(kOthers))]
                                                  : kOfState[chance_.below(std::size(kOfState))];
  cluster_.add(group, true, mistake);
  return true;
}

// A newcomer that needs the state, and whose sender is killed.
bool Faults::sender_dies() {
  if (!cluster_.room() || cluster_.rules().gentle || cluster_.rules().mortal) return false;
  sender_dies_ = true;
  count("newcomer");
  cluster_.add(chance_.below(cluster_.groups().size()));
  return true;
}

// ---- Master faults ----

bool Faults::master_is_stable() const {
  return world_.master_runs() && !world_.master_paused() &&
         world_.event_loop().now() - master_up_ > kMasterStable;
}

// The master may be away repeatedly, but in total for less time than peers wait for it
// (master_timeout). In gentle runs and with a quiet group, the total is even less than joining
// peers wait.
Duration Faults::master_may_be_away() {
  const Instant now = world_.event_loop().now();
  if (!world_.master_runs() || world_.master_paused()) return Duration{0};
  if (now - master_up_ > kMasterStable) master_away_since_ = now;
  bool patient = !cluster_.rules().gentle;
  for (const Cluster::Group& group : cluster_.groups()) patient &= !group.quiet;
  return master_away_since_ + (patient ? kPeerTimeout * 2 : kPeerTimeout / 2) - now;
}

bool Faults::kill_master() {
  const Duration left = master_may_be_away();
  if (left <= Duration{0}) return false;
  world_.kill_master();
  const Duration away = chance_.duration(Duration{0}, chance_.once_in(2) ? left : left / 10);
  master_up_ = world_.event_loop().now() + away;
  lasting_.add(away, [this] {
    if (!world_.master_runs()) world_.start_master();
  });
  return true;
}

// Not while a peer is at risk. A peer that is cut off from a member might report that member during
// the pause, and the member's own connection then breaks, too.
bool Faults::stop_master() {
  const Duration left = master_may_be_away();
  for (size_t group = 0; group < cluster_.groups().size(); ++group) {
    if (!cluster_.calm(group)) return false;
  }
  if (left <= Duration{0}) return false;
  world_.stop_master();
  const Duration away = chance_.duration(Duration{0}, chance_.once_in(2) ? left : left / 10);
  master_up_ = world_.event_loop().now() + away;
  lasting_.add(away, [this] { world_.master_goes_on(); });
  return true;
}

// Not in a gentle run while a link may be rebuilt: the jump costs one tick, and that is too much.
bool Faults::jump_master_clock() {
  const Instant now = world_.event_loop().now();
  const bool troubled = std::any_of(rested_.begin(), rested_.end(),
                                    [now](const auto& at) { return at.second > now; });
  if (cluster_.rules().gentle && troubled) return false;
  world_.jump_master_clock(chance_.duration(Duration{0}, 10 * kPeerTimeout));
  return true;
}

// ---- Connection faults ----

// The connection of a spared peer is cut only while nobody can have lost a link to it and the
// master has not just come back. Both together would be a loss.
bool Faults::cut_master_connection() {
  PeerNode* const peer = any();
  if (peer == nullptr || cluster_.rules().gentle) return false;
  const bool sure = cluster_.calm(peer->group().value) && master_is_stable();
  if (cluster_.spared(*peer) && !sure) return false;
  cluster_.at_risk(*peer, kDeactivate);
  return world_.break_master_connection(*peer);
}

// The peer connects to the master again. A master may learn the token later than the peer; then the
// peer shows it twice.
bool Faults::renew() {
  constexpr Duration kLearned = std::chrono::seconds(1);
  PeerNode* const peer = any();
  if (peer == nullptr || cluster_.rules().gentle || !world_.options().secured) return false;
  const bool sure = cluster_.calm(peer->group().value) && master_is_stable();
  if (cluster_.spared(*peer) && !sure) return false;
  const bool early = !cluster_.spared(*peer) && chance_.once_in(4);
  cluster_.at_risk(*peer, early ? kDeactivate + 4 * kLearned : kDeactivate);
  world_.renew(*peer, early ? World::Renewal::kUnknown : World::Renewal::kKnown);
  if (early) lasting_.add(kLearned, [this, peer] { world_.learn(*peer); });
  return true;
}

bool Faults::half_cut_master_connection() {
  PeerNode* const peer = any();
  if (peer == nullptr || cluster_.rules().gentle) return false;
  const bool sure = cluster_.calm(peer->group().value) && master_is_stable();
  if (cluster_.spared(*peer) && !sure) return false;
  cluster_.at_risk(*peer, kDeactivate);
  return world_.half_break_master_connection(*peer, chance_.once_in(2));
}

bool Faults::pair_trouble(bool half) {
  PeerNode* const peer = any();
  PeerNode* const other = peer == nullptr ? nullptr : partner(*peer);
  if (other == nullptr) return false;
  // If a peer's connection to the master breaks at the same time, the peer is given up.
  if (!cluster_.rules().gentle && !(cluster_.may_lose(*peer) && cluster_.may_lose(*other)))
    return false;
  if (cluster_.rules().gentle) {
    // A lost SYN is sent again after one second: too late for a link that must be rebuilt.
    if (!world_.network().open_both_ways(peer->port(), other->port())) return false;
  } else {
    cluster_.at_risk(*peer, kAftermath);
    cluster_.at_risk(*other, kAftermath);
  }
  deactivate(*peer, kDeactivate);
  deactivate(*other, kDeactivate);
  return half ? world_.half_break_link(*peer, *other, chance_.once_in(2))
              : world_.break_link(*peer, *other);
}

bool Faults::break_link() { return pair_trouble(false); }
bool Faults::half_break_link() { return pair_trouble(true); }

// An unknown connection sends a hello that is wrong in one of the possible ways, or no hello.
bool Faults::stranger() {
  PeerNode* const peer = any();
  PeerNode* const other = peer == nullptr ? nullptr : partner(*peer);
  if (other == nullptr || peer->paused() || !peer->id() || !other->id()) return false;
  constexpr uint32_t kFar = 1'000'000;
  const uint64_t kind = chance_.below(7);
  const PeerId self = kind == 0 ? PeerId{peer->id().value + kFar} : other->id();
  protocol::LaneHello hello{.run_id = kind == 0 ? 8u : 7u,
                            .self = self,
                            .other = peer->id(),
                            .serial = protocol::next_serial(kFar, self > peer->id())};
  const auto later = static_cast<uint16_t>(protocol::kSpoken.highest + 1);
  if (kind == 1) hello.versions = {later, later};
  if (kind == 2) hello.other = other->id();
  if (kind == 3) hello.self = peer->id();
  if (kind == 4) hello.self = {};
  if (kind == 5) ++hello.serial;
  peer->links().on_pending_frame(kind < 6 ? std::optional(hello) : std::nullopt,
                                 world_.credential(other->id(), peer->id()));
  return true;
}

// Somebody tries to get in with a credential that is wrong in one of the possible ways. Such a
// handshake fails before the core sees it.
bool Faults::wrong_key() {
  PeerNode* const peer = any();
  PeerNode* const other = peer == nullptr ? nullptr : partner(*peer);
  if (other == nullptr || peer->paused() || !peer->id() || !other->id()) return false;
  std::optional<protocol::LaneCredential> credential = world_.credential(other->id(), peer->id());
  if (!credential) return false;
  const auto& shown = peer->links().credentials();
  switch (chance_.below(6)) {
    case 0: credential->key.words[chance_.below(4)] ^= uint64_t{1} << chance_.below(64); break;
    case 1: ++credential->identity.number; break;
    case 2: credential->identity.dialler = peer->id(); break;
    case 3: credential = world_.credential(peer->id(), other->id()); break;  // sent back
    case 4: credential->identity.incarnation += 1; break;
    case 5:
      if (shown.empty()) return false;
      credential = shown[chance_.below(shown.size())];
      ++credential->key.words[0];
  }
  if (peer->links().lets_in(*credential))
    world_.on_violation("P5 " + peer->name() + " lets a stranger in");
  return true;
}

bool Faults::copied_handshake() {
  PeerNode* const peer = any();
  if (peer == nullptr || peer->paused()) return false;
  return peer->links().on_copied_introduction(chance_.below(1000));
}

// ---- Network faults ----

bool Faults::pair_cut_off(bool one_way) {
  PeerNode* const peer = any();
  PeerNode* const other = peer == nullptr ? nullptr : partner(*peer);
  if (other == nullptr) return false;
  const bool harmless = !cluster_.may_lose(*peer) || !cluster_.may_lose(*other);
  if (harmless && !(rested(*peer) && rested(*other) && master_is_stable())) return false;
  const Duration duration = outage(harmless);
  if (!harmless) {
    cluster_.at_risk(*peer, duration + kAftermath);
    cluster_.at_risk(*other, duration + kAftermath);
  }
  deactivate(*peer, duration + kDeactivate);
  deactivate(*other, duration + kDeactivate);
  block(peer->port(), other->port(), duration);
  if (!one_way) block(other->port(), peer->port(), duration);
  return true;
}

bool Faults::cut_off_pair() { return pair_cut_off(false); }
bool Faults::cut_off_pair_one_way() { return pair_cut_off(true); }

// Smaller segments help, except on the narrowest path. There the link is given up in the end.
bool Faults::narrow_pair() {
  PeerNode* const peer = any();
  PeerNode* const other = peer == nullptr ? nullptr : partner(*peer);
  if (other == nullptr || cluster_.rules().gentle) return false;
  if (!cluster_.may_lose(*peer) || !cluster_.may_lose(*other)) return false;
  constexpr size_t kWidths[] = {1300, 600, 400};
  const size_t width = kWidths[chance_.below(std::size(kWidths))];
  const Duration duration = chance_.duration(Duration{0}, 4 * kPeerTimeout);
  cluster_.at_risk(*peer, duration + kAftermath);
  cluster_.at_risk(*other, duration + kAftermath);
  deactivate(*peer, duration + kDeactivate);
  deactivate(*other, duration + kDeactivate);
  const bool one_way = chance_.once_in(2);
  for (const auto& [from, to] : {std::pair(peer, other), std::pair(other, peer)}) {
    if (one_way && from == other) continue;
    if (world_.network().width(from->port(), to->port()) != SIZE_MAX) continue;
    world_.narrow(from->port(), to->port(), width);
    lasting_.add(duration, [this, a = from->port(), b = to->port()] { world_.widen(a, b); });
  }
  return true;
}

// If no other peer of its group is in trouble, the peer that is cut off is the one that is lost.
PeerNode* Faults::to_cut_off() {
  PeerNode* const peer = victim();
  const bool sure = peer != nullptr && rested(*peer) && cluster_.calm(peer->group().value);
  return sure && master_is_stable() ? peer : nullptr;
}

// All links of the peer are dead, while each other member has only one dead link. That needs two
// other members, which stay meanwhile (Cluster::cut_off).
bool Faults::cut_off_from_peers() {
  PeerNode* const peer = to_cut_off();
  if (peer == nullptr) return false;
  if (cluster_.sure_others(*peer).size() < 2) return false;
  const Duration duration = outage(false);
  cut_off(*peer, duration);
  cluster_.cut_off(*peer, duration + kPeerTimeout + kAftermath);
  return true;
}

bool Faults::master_cut_off(bool one_way) {
  PeerNode* const peer = any();
  if (peer == nullptr) return false;
  const bool harmless = !cluster_.may_lose(*peer);
  if (harmless && !(rested(*peer) && master_is_stable() && cluster_.calm(peer->group().value)))
    return false;
  const Duration duration = outage(harmless);
  if (!harmless) cluster_.at_risk(*peer, duration + kAftermath);
  deactivate(*peer, duration + kDeactivate);
  const bool to_master = chance_.once_in(2);
  if (!one_way || to_master) block(peer->port(), Network::kMaster, duration);
  if (!one_way || !to_master) block(Network::kMaster, peer->port(), duration);
  return true;
}

bool Faults::cut_off_from_master() { return master_cut_off(false); }
bool Faults::cut_off_from_master_one_way() { return master_cut_off(true); }

bool Faults::cut_off_from_all() {
  PeerNode* const peer = to_cut_off();
  if (peer == nullptr) return false;
  const Duration duration = outage(false);
  block(peer->port(), Network::kMaster, duration);
  block(Network::kMaster, peer->port(), duration);
  cut_off(*peer, duration);
  return true;
}

// ---- Faults at a certain transition ----

// Arms a fault: when a state machine next takes the chosen transition, something happens.
bool Faults::trigger() {
  if (coverage_ == nullptr || cluster_.rules().gentle) return false;
  auto rows = Coverage::rows();
  // Half of the triggers choose the states that are hardest to hit: the fault must be quick.
  constexpr const char* kHard[] = {"-> draining", "-> ending", "broken -> starting",
                                   "ending -> broken"};
  const char* const hard = chance_.once_in(2) ? kHard[chance_.below(std::size(kHard))] : nullptr;
  const bool any_at_all = !cluster_.rules().mortal && chance_.once_in(4);
  std::erase_if(rows, [&](const auto& at) {
    const std::string step = at.first->text(at.second);
    if (hard != nullptr) return !step.ends_with(hard);
    return !any_at_all && !is_brief(step);
  });
  const auto chosen = rows[chance_.below(rows.size())];
  coverage_->on_step = [this, chosen](const TransitionTable& table, size_t row) {
    if (sprung_ || paused_ || &table != chosen.first || row != chosen.second) return;
    sprung_ = true;
    const Duration soon =
        chance_.once_in(2) ? Duration{0} : chance_.duration(Duration{0}, kTick / 100);
    world_.event_loop().after(soon, [this, who = world_.stepping] {
      if (!paused_) strike(who);
    });
  };
  sprung_ = false;
  return true;
}

// All peers are gone, and no closed connection shows it: the master misses all of them at once.
void Faults::lose_power() {
  count("the power of all peers lost at a certain step");
  for (PeerNode* one : cluster_.all()) block(one->port(), Network::kMaster, 2 * kPeerTimeout);
  for (PeerNode* one : cluster_.all()) one->kill("without power, like all others");
}

// Hits a peer or the master. The peer is `who`, whose core took the step, if it may be lost;
// otherwise another one.
void Faults::strike(PeerNode* who) {
  cluster_.choose_immortals();
  const bool may = who != nullptr && who->alive() && !who->gone() && cluster_.may_lose(*who);
  PeerNode* const peer = may ? who : victim();
  const bool leaves = !chance_.once_in(cluster_.rules().mortal ? 4 : 2);
  const uint64_t how = chance_.below(cluster_.rules().mortal ? 6 : 4);
  if (how == 0) {
    if (kill_master()) count("master killed at a certain step");
  } else if (how == 1) {
    if (cut_master_connection()) count("master connection reset at a certain step");
  } else if (cluster_.rules().mortal && how < 5) {
    if (chance_.once_in(2)) {
      lose_power();
    } else {
      count(leaves ? "all left at a certain step" : "all killed at a certain step");
      for (PeerNode* one : cluster_.all())
        leaves ? one->leave() : one->kill("killed with all others");
    }
    for (size_t group = 0; group < cluster_.groups().size(); ++group) {
      for (uint32_t i = 0; i < cluster_.groups()[group].founders; ++i) cluster_.add(group);
    }
  } else if (peer != nullptr) {
    count(leaves ? "left at a certain step" : "killed at a certain step");
    leaves ? peer->leave() : peer->kill("killed");
  }
}

}  // namespace pccl::sim
