#include "master/members/membership.h"

#include <algorithm>
#include <set>

#include "csrc/base/assert.h"
#include "csrc/base/endpoint.h"
#include "csrc/protocol/limits.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

// A process that ends closes its links together with its connection to the master. So a link that
// has been down for this number of ticks or more went down for a different reason.
constexpr int kDownBeforeTicks = 2;
// If the link between a newcomer and a member is down for this number of ticks, the newcomer is
// refused. An attempt to connect takes at most ten ticks, so by then each side has failed and tried
// again.
constexpr int kRefusedTicks = 15;

// Whether this reader may learn all that the members report.
bool may_know_all(Membership::Reader reader) {
  return reader == Membership::Reader::kMember || reader == Membership::Reader::kOperator;
}

}  // namespace

// ---- Joining and leaving ----

void Membership::welcome(PeerId peer, Peer about) {
  const bool fresh = peers_.emplace(peer, std::move(about)).second;
  PCCL_ASSERT(fresh);
}

std::vector<PeerId> Membership::register_peer(PeerId id, const protocol::Register& where) {
  const auto at = peers_.find(id);
  PCCL_ASSERT(at != peers_.end() && at->second.order == 0);
  Peer& peer = at->second;
  std::vector<PeerId> linked;
  for (const auto& [other, about] : peers_) {
    if (about.order == 0) continue;
    links.add(other, id);
    linked.push_back(other);
  }
  peer.host = where.host;
  peer.port = where.port;
  peer.others = dialable(where.others);
  peer.order = ++registrations_;
  PCCL_ASSERT(links.size() == linked.size() * (linked.size() + 1) / 2);
  return linked;
}

void Membership::set_connected(PeerId id, bool connected, std::string breach) {
  const auto at = peers_.find(id);
  PCCL_ASSERT(at != peers_.end());
  Peer& peer = at->second;
  peer.connected = connected;
  peer.breach = std::move(breach);
  peer.away_ticks = 0;
}

bool Membership::may_resume_after_breach(PeerId peer) {
  return ++peers_.at(peer).breaches < kBreachesMax;
}

std::string Membership::loss_text(PeerId peer) const {
  const std::string& breach = peers_.at(peer).breach;
  return breach.empty() ? "its process ended or its network broke" : "it broke a rule: " + breach;
}

std::optional<PeerId> Membership::remove(PeerId peer, const std::string& why) {
  const size_t found = peers_.erase(peer);
  PCCL_ASSERT(found == 1);
  std::erase(members_, peer);
  ranks_.erase(peer);
  PCCL_ASSERT(members_.size() == ranks_.size());
  look_at_standings();
  links.forget(peer);
  gone_.push_back({peer, why});
  if (gone_.size() <= protocol::kMembersMax) return std::nullopt;
  const PeerId forgotten = gone_.front().peer;
  gone_.pop_front();
  return forgotten;
}

void Membership::admit(std::vector<PeerId> members, Instant now) {
  PCCL_ASSERT(members.size() >= members_.size() && members.size() <= protocol::kMembersMax);
  for (const PeerId member : members) {
    PCCL_ASSERT(find(member) != nullptr && find(member)->order != 0);
    Peer& peer = peers_.at(member);
    peer.breaches = 0;
    if (!is_member(member)) peer.last_call = {LastCall::Nothing{}, now};
  }
  members_ = std::move(members);
  ranks_.clear();
  for (uint32_t rank = 0; rank < members_.size(); ++rank) ranks_[members_[rank]] = rank;
  PCCL_ASSERT(ranks_.size() == members_.size());
  look_at_standings();
}

void Membership::set_holder(PeerId peer, std::optional<Holder> holder) {
  peers_.at(peer).holder = std::move(holder);
}

std::vector<PeerId> Membership::holders_of(const std::set<std::string>& tokens) const {
  std::vector<PeerId> found;
  for (const auto& [id, peer] : peers_) {
    if (peer.holder && tokens.contains(peer.holder->token)) found.push_back(id);
  }
  return found;
}

void Membership::called(PeerId member, LastCall call) {
  PCCL_ASSERT(is_member(member));
  peers_.at(member).last_call = std::move(call);
}

void Membership::operation_ended(std::optional<OpKey> op, Code outcome, Instant now) {
  for (const PeerId member : members_) {
    LastCall& last = peers_.at(member).last_call;
    const auto* const call = std::get_if<LastCall::Operation>(&last.call);
    if (call != nullptr && (!op || call->key == *op)) last.end(outcome, now);
  }
}

void Membership::joint_call_ended(PeerId member, Code outcome, Instant now) {
  PCCL_ASSERT(is_member(member));
  LastCall& last = peers_.at(member).last_call;
  if (std::holds_alternative<protocol::JointKind>(last.call)) last.end(outcome, now);
}

// A receive that has found its send sends Begin, which is then the last call. So a receive that is
// still the last call when it stops asking has timed out.
void Membership::stopped_asking(PeerId member, Instant now) {
  PCCL_ASSERT(is_member(member));
  LastCall& last = peers_.at(member).last_call;
  if (std::holds_alternative<LastCall::AnySend>(last.call)) last.end(Code::kOperationTimeout, now);
}

void Membership::restore(const std::vector<protocol::Member>& ranked,
                         const std::vector<MemberRecord>& left) {
  PCCL_ASSERT(peers_.empty());
  for (const MemberRecord& member : left) {
    PCCL_ASSERT(member.order != 0);
    Peer peer;
    peer.seen_host = member.seen_host;
    peer.seen_loopback = member.seen_loopback;
    peer.host = member.host;
    peer.port = member.port;
    peer.others = member.others;
    peer.order = member.order;
    peer.launch = member.launch;
    peer.name = member.name;
    peer.holder = member.holder;
    peer.connected = false;
    registrations_ = std::max(registrations_, member.order);
    for (const auto& [other, about] : peers_) {
      links.add(other, member.peer);
    }
    peers_[member.peer] = std::move(peer);
  }
  for (uint32_t rank = 0; rank < ranked.size(); ++rank) {
    if (!peers_.contains(ranked[rank].peer)) continue;
    members_.push_back(ranked[rank].peer);
    ranks_[ranked[rank].peer] = rank;
  }
  PCCL_ASSERT(members_.size() == left.size());
  look_at_standings();
}

MemberRecord Membership::record(PeerId id) const {
  const Peer& peer = peers_.at(id);
  PCCL_ASSERT(peer.order != 0);
  return {id,         peer.seen_host, peer.seen_loopback, peer.host, peer.port,
          peer.order, peer.launch,    peer.others,        peer.name, peer.holder};
}

// ---- Queries ----

const Membership::Peer* Membership::find(PeerId peer) const {
  const auto at = peers_.find(peer);
  return at == peers_.end() ? nullptr : &at->second;
}

std::optional<uint32_t> Membership::rank(PeerId peer) const {
  const auto at = ranks_.find(peer);
  if (at == ranks_.end()) return std::nullopt;
  return at->second;
}

std::vector<PeerId> Membership::waiting() const {
  std::vector<PeerId> waiting;
  for (const auto& [id, peer] : peers_) {
    if (peer.order != 0 && !is_member(id)) waiting.push_back(id);
  }
  std::sort(waiting.begin(), waiting.end(),
            [this](PeerId a, PeerId b) { return peers_.at(a).order < peers_.at(b).order; });
  return waiting;
}

bool Membership::is_newcomer(PeerId peer) const {
  return std::find(newcomers_.begin(), newcomers_.end(), peer) != newcomers_.end();
}

void Membership::raise(const std::vector<PeerId>& peers, protocol::Standing to) {
  for (const PeerId id : peers) {
    protocol::Standing& standing = peers_.at(id).standing;
    standing = std::max(standing, to);
  }
  look_at_standings();
}

void Membership::look_at_standings() {
  newcomers_.clear();
  lowest_standing_ = protocol::Standing::kSynced;
  highest_standing_ = protocol::Standing::kNone;
  for (const PeerId member : members_) {
    const protocol::Standing standing = peers_.at(member).standing;
    lowest_standing_ = std::min(lowest_standing_, standing);
    highest_standing_ = std::max(highest_standing_, standing);
  }
  const auto needed = std::min(highest_standing_, protocol::Standing::kCompared);
  for (const PeerId member : members_) {
    if (peers_.at(member).standing < needed) newcomers_.push_back(member);
  }
  PCCL_ASSERT(members_.empty() || newcomers_.size() < members_.size());
}

std::optional<PeerId> Membership::wished_by(int32_t rank) const {
  for (const auto& [id, peer] : peers_) {
    if (peer.wish == rank && !is_member(id)) return id;
  }
  return std::nullopt;
}

// ---- Rules ----

bool Membership::reached(PeerId peer, const std::vector<PeerId>& by) const {
  return std::all_of(by.begin(), by.end(), [&](PeerId other) { return links.linked(other, peer); });
}

// A peer that most others cannot reach comes last. Otherwise it would keep all of them out, if it
// came first.
std::vector<PeerId> Membership::by_links() const {
  const std::vector<PeerId> all = waiting();
  std::vector<std::pair<size_t, PeerId>> counted;
  counted.reserve(all.size());
  for (const PeerId peer : all) counted.emplace_back(links.dead_count(peer, all), peer);
  std::stable_sort(counted.begin(), counted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<PeerId> sorted;
  sorted.reserve(all.size());
  for (const auto& [dead, peer] : counted) sorted.push_back(peer);
  return sorted;
}

std::vector<PeerId> Membership::pending(size_t room) const {
  std::vector<PeerId> pending;
  for (const PeerId peer : by_links()) {
    if (pending.size() >= room) break;
    if (!peers_.at(peer).connected || !reached(peer, members_)) continue;
    if (reached(peer, pending)) pending.push_back(peer);
  }
  return pending;
}

std::optional<std::vector<PeerId>> Membership::founders(size_t count) const {
  PCCL_ASSERT(count > 0);
  // All founders have to be linked with each other: this count is a cheap check before the
  // expensive one.
  if (!members_.empty() || links.up_count() < count * (count - 1) / 2) return std::nullopt;
  const std::vector<PeerId> chosen = pending(count);
  if (chosen.size() < count) return std::nullopt;
  std::vector<PeerId> ranks(count), others;
  for (const PeerId peer : chosen) {
    const int32_t wish = peers_.at(peer).wish;
    const bool free = wish >= 0 && static_cast<size_t>(wish) < count && !ranks[wish];
    if (free) {
      ranks[wish] = peer;
    } else {
      others.push_back(peer);
    }
  }
  auto next = others.begin();
  for (PeerId& rank : ranks) {
    if (!rank) rank = *next++;
  }
  PCCL_ASSERT(next == others.end());
  return ranks;
}

std::string Membership::why_apart(PeerId from, PeerId to, Reader reader) const {
  const Links::View& view = links.view(from, to);
  const bool words = reader == Reader::kOperator ||
                     (reader == Reader::kObserver && view.disclosure == Disclosure::kFull);
  std::string why = fault_text(view.fault);
  if (!may_know_all(reader) && view.disclosure == Disclosure::kFailure)
    why = fault_text(LinkFault::kOther);
  if (words && !view.text.empty()) why = ": " + view.text;
  const std::string left_out = addresses(from, to).left_out;
  return left_out.empty() ? why : why + " (the latter " + left_out + ")";
}

std::string Membership::apart(PeerId peer, PeerId other, Reader reader) const {
  return describe(other) + " cannot connect to " + describe(peer) + why_apart(other, peer, reader) +
         "; " + name(peer) + " cannot connect to " + name(other) + why_apart(peer, other, reader);
}

std::vector<PeerId> Membership::out_of_reach(PeerId peer, Reader reader) const {
  const auto fails = [&](PeerId from, PeerId to) {
    const Links::View& view = links.view(from, to);
    return may_know_all(reader) ? view.unreachable() : view.shows_failure();
  };
  std::vector<PeerId> all;
  for (const auto& [other, about] : peers_) {
    if (other == peer || !fails(other, peer)) continue;
    if (is_member(other) && is_member(peer)) continue;  // one of them will be lost
    // Otherwise the peer has not tried yet.
    if (fails(peer, other)) all.push_back(other);
  }
  return all;
}

std::string Membership::obstacle(PeerId peer, Reader reader) const {
  const std::vector<PeerId> others = out_of_reach(peer, reader);
  const size_t named = std::min(others.size(), protocol::kRanksNamedMax);
  std::string out;
  for (size_t i = 0; i < named; ++i)
    out += (out.empty() ? "" : "; ") + apart(peer, others[i], reader);
  if (named < others.size()) out += "; and " + std::to_string(others.size() - named) + " more";
  return out;
}

bool Membership::is_being_dialled(PeerId peer) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const auto& at) {
    const PeerId other = at.first;
    const bool concerns = other != peer && at.second.order != 0 &&
                          (members_.empty() || is_member(other)) && !links.linked(other, peer);
    return concerns &&
           !(links.view(other, peer).shows_failure() && links.view(peer, other).shows_failure());
  });
}

// Chooses which end of a dead link is lost: the member with more dead links, or if both have the
// same number, the one that registered later.
PeerId Membership::weaker(PeerId a, PeerId b) const {
  PCCL_ASSERT(is_member(a) && is_member(b));
  const size_t dead_a = links.dead_count(a, members_), dead_b = links.dead_count(b, members_);
  if (dead_a != dead_b) return dead_a > dead_b ? a : b;
  return peers_.at(a).order > peers_.at(b).order ? a : b;
}

std::vector<Membership::Lost> Membership::tick(Duration peer_timeout,
                                               const std::function<bool(PeerId)>& lively) {
  std::vector<Lost> lost;
  const auto gone = [&lost](PeerId peer) {
    return std::any_of(lost.begin(), lost.end(), [&](const Lost& one) { return one.peer == peer; });
  };
  for (auto& [id, peer] : peers_) {
    if (peer.order != 0 && !is_member(id)) ++peer.waiting_ticks;
    if (peer.connected || ++peer.away_ticks < protocol::kTicksPerTimeout) continue;
    const bool honest = peer.breach.empty();
    const std::string how = honest ? "its connection to the master broke and" : loss_text(id) + ";";
    lost.push_back({id, how + " it did not come back within " + text(peer_timeout)});
  }
  // A peer that is held up, for example by a SIGSTOP, cannot make a link again. So the ticks of
  // this time do not count for its links.
  links.tick([&](PeerId a, PeerId b) { return lively(a) && lively(b); });
  for (const Links::Dead& dead : links.dead(kLinkDownTicks)) {
    if (gone(dead.a) || gone(dead.b)) continue;
    if (!is_member(dead.a) || !is_member(dead.b)) {
      const PeerId newcomer = is_member(dead.a) ? dead.b : dead.a;
      if (!cannot_be_linked(newcomer, dead)) continue;
      const PeerId other = newcomer == dead.a ? dead.b : dead.a;
      const auto why = [&](Reader reader) {
        return apart(newcomer, other, reader) + ". " + kWhatToOpen;
      };
      lost.push_back({newcomer, why(Reader::kStranger), "refused: " + why(Reader::kMember)});
      continue;
    }
    const PeerId victim = weaker(dead.a, dead.b);
    const PeerId other = victim == dead.a ? dead.b : dead.a;
    lost.push_back({victim, down_text("it", other, dead.text), {}, LossCause::kLink});
  }
  return lost;
}

// Whether the newcomer is refused because of this link. It is not if the member at the other end
// has dead links to other members: then that member is lost first.
bool Membership::cannot_be_linked(PeerId newcomer, const Links::Dead& link) const {
  PCCL_ASSERT(!is_member(newcomer) && (newcomer == link.a || newcomer == link.b));
  const PeerId other = newcomer == link.a ? link.b : link.a;
  return link.both_unreachable && link.ticks >= kRefusedTicks && is_member(other) &&
         peers_.at(newcomer).waiting_ticks >= protocol::kTicksPerTimeout &&
         links.dead_count(other, members_) == 0;
}

bool Membership::lost_at_once(PeerId peer) const {
  const Peer* about = find(peer);
  if (about == nullptr || !is_member(peer) || about->connected) return false;
  return std::any_of(members_.begin(), members_.end(), [&](PeerId other) {
    return other != peer && links.view(other, peer).dead() &&
           links.down_ticks(other, peer) < kDownBeforeTicks;
  });
}

// ---- Text formatting ----

protocol::Member Membership::member(PeerId id) const {
  const Peer& peer = peers_.at(id);
  return {id, pccl::text(Endpoint{peer.host.empty() ? peer.seen_host : peer.host, peer.port}),
          peer.name};
}

std::string Membership::name(PeerId id) const {
  return protocol::text(protocol::Member{id, "", peers_.at(id).name});
}

std::string Membership::down_text(const std::string& one, PeerId other,
                                  const std::string& why) const {
  return "the link between " + one + " and " + describe(other) + " is down" +
         (why.empty() ? "" : ": " + why);
}

RankNames Membership::rank_names() const {
  RankNames names;
  for (const auto& [id, rank] : ranks_) {
    if (rank >= names.size()) names.resize(rank + 1);
    names[rank] = peers_.at(id).name;
  }
  return names;
}

std::string Membership::ranks_text(const std::vector<uint32_t>& ranks) const {
  return master::ranks_text(ranks, rank_names());
}

std::string Membership::describe(PeerId id) const {
  const auto at = rank(id);
  protocol::Member peer = member(id);
  if (peers_.at(id).order == 0) peer.address = peers_.at(id).seen_host;
  return protocol::text(peer, at ? "rank " + std::to_string(*at) : "");
}

AddressChoice Membership::addresses(PeerId dialler, PeerId target) const {
  const Peer& to = peers_.at(target);
  PCCL_ASSERT(dialler != target && to.order != 0);
  return choose_addresses(peers_.at(dialler), to);
}

Disclosure Membership::disclosure(PeerId dialler, PeerId target) const {
  return is_member(target) ? Disclosure::kFull : addresses(dialler, target).disclosure;
}

protocol::Dial Membership::dial(PeerId dialler, PeerId target) const {
  const AddressChoice at = addresses(dialler, target);
  return {target, at.first.host, at.first.port, links.dead_serial(dialler, target), at.others};
}

// ---- Invariants ----

void Membership::check() const {
  links.check();
  size_t registered = 0;
  std::set<uint64_t> orders;
  for (const auto& [id, peer] : peers_) {
    if (peer.order != 0) ++registered;
    const bool its_own = peer.order == 0 || orders.insert(peer.order).second;
    PCCL_ASSERT(its_own);
    PCCL_ASSERT(peer.order <= registrations_);
    PCCL_ASSERT(peer.order != 0 || peer.waiting_ticks == 0);
    PCCL_ASSERT(peer.away_ticks < protocol::kTicksPerTimeout);
    PCCL_ASSERT(!peer.connected || peer.away_ticks == 0);
  }
  PCCL_ASSERT(links.size() == registered * (registered - 1) / 2 || registered == 0);
  PCCL_ASSERT(registered != 0 || links.size() == 0);
  PCCL_ASSERT(gone_.size() <= protocol::kMembersMax);
  for (const Gone& gone : gone_) PCCL_ASSERT(!peers_.contains(gone.peer));
  check_members();
  check_standings();
}

void Membership::check_members() const {
  PCCL_ASSERT(members_.size() == ranks_.size() && members_.size() <= protocol::kMembersMax);
  uint32_t next_rank = 0;
  for (const PeerId member : members_) {
    const auto peer = peers_.find(member);
    PCCL_ASSERT(peer != peers_.end() && peer->second.order != 0);
    const auto rank = ranks_.find(member);
    PCCL_ASSERT(rank != ranks_.end() && rank->second >= next_rank);
    next_rank = rank->second + 1;
  }
}

void Membership::check_standings() const {
  protocol::Standing lowest = protocol::Standing::kSynced, highest = protocol::Standing::kNone;
  for (const PeerId member : members_) {
    const protocol::Standing standing = peers_.at(member).standing;
    lowest = std::min(lowest, standing);
    highest = std::max(highest, standing);
  }
  PCCL_ASSERT(lowest == lowest_standing_ && highest == highest_standing_);
  const auto needed = std::min(highest, protocol::Standing::kCompared);
  auto newcomer = newcomers_.begin();
  for (const PeerId member : members_) {
    if (peers_.at(member).standing >= needed) continue;
    PCCL_ASSERT(newcomer != newcomers_.end() && *newcomer == member);
    ++newcomer;
  }
  PCCL_ASSERT(newcomer == newcomers_.end());
}

}  // namespace pccl::master
