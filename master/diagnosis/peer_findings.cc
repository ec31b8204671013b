#include "master/diagnosis/peer_findings.h"

#include <algorithm>
#include <utility>

#include "csrc/protocol/drift.h"
#include "csrc/protocol/keepalive_timer.h"
#include "master/context.h"
#include "master/group/group.h"
#include "master/group/wait_texts.h"
#include "master/members/connections.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

// If nothing is wrong, a peer whose connection broke resumes within this number of ticks.
constexpr int kAwayMax = 2;
// A member drifts no more if this number of revisions was agreed on since its last correction.
constexpr uint64_t kDriftShownMax = 16;

std::string waited(Duration time) { return "; it has waited for " + text(time); }

// Collects the findings of one group.
class PeerFindings {
 public:
  explicit PeerFindings(const Group& group) : group_(group), view_(group.view()), texts_(view_) {}

  std::vector<Finding> all() && {
    see_waiting_peers();
    see_shortage();
    see_drifts();
    see_slow_member();
    if (view_.epochs.recovering()) {
      see_recovery();
    } else {
      for (const auto& [peer, about] : view_.membership.peers()) see_silence(peer, about);
    }
    return std::move(found_);
  }

 private:
  void see_waiting_peers();
  void see_newcomer(PeerId peer, Delay delay);
  void see_founders(const std::vector<PeerId>& waiting, Delay delay);
  void see_shortage();
  void see_drifts();
  void see_slow_member();
  void see_recovery();
  void see_silence(PeerId peer, const Membership::Peer& about);
  std::string what_to_open(PeerId peer) const;
  std::string port_of(PeerId peer) const;
  std::vector<std::string> names(const std::vector<PeerId>& peers) const;
  Duration ticks(int count) const { return count * protocol::tick_of(timeout()); }
  // Everybody can observe a run without tokens.
  Membership::Reader reader() const {
    return view_.context.options.seed ? Membership::Reader::kOperator
                                      : Membership::Reader::kObserver;
  }
  Duration timeout() const { return view_.context.settings.peer_timeout; }

  const Group& group_;
  const GroupView& view_;
  const WaitTexts texts_;
  std::vector<Finding> found_;
};

std::vector<std::string> PeerFindings::names(const std::vector<PeerId>& peers) const {
  std::vector<std::string> all;
  for (const PeerId peer : peers) {
    if (all.size() < protocol::kRanksNamedMax) all.push_back(view_.membership.name(peer));
  }
  return all;
}

void PeerFindings::see_waiting_peers() {
  const std::vector<PeerId> waiting = view_.membership.waiting();
  for (const PeerId peer : waiting) {
    const Delay delay = view_.delay_of(peer);
    const bool founds = delay == Delay::kTooFewPeers || delay == Delay::kUnlinkedPeers;
    if (founds) return see_founders(waiting, delay);
    // If all members are away, they are what is wrong: see_silence() and see_recovery().
    if (delay != Delay::kNone && delay != Delay::kMembersAway) see_newcomer(peer, delay);
  }
}

void PeerFindings::see_newcomer(PeerId peer, Delay delay) {
  const NotAdmitted why =
      texts_.why_waiting(peer, delay, group_.notices().last_obstacle(), reader());
  const Duration time = ticks(view_.membership.find(peer)->waiting_ticks);
  Finding finding{FindingCode::kNewcomerUnreachable, Severity::kError, names({peer}),
                  texts_.not_admitted(peer, why.reason) + waited(time), what_to_open(peer)};
  if (delay == Delay::kNoUpdate) {
    finding.code = FindingCode::kNewcomerWaitsForUpdateTopology;
    finding.next = WaitTexts::kCallUpdate;
  }
  found_.push_back(std::move(finding));
}

std::string PeerFindings::port_of(PeerId peer) const {
  const Membership::Peer& about = *view_.membership.find(peer);
  return "TCP port " + std::to_string(about.port) + " at " +
         (about.host.empty() ? about.seen_host : about.host) + " for " +
         view_.membership.name(peer);
}

std::string PeerFindings::what_to_open(PeerId peer) const {
  const std::vector<PeerId> others = view_.membership.out_of_reach(peer, reader());
  const size_t named = std::min(others.size(), protocol::kRanksNamedMax);
  std::string out = "open " + port_of(peer);
  for (size_t i = 0; i < named; ++i) out += (i == 0 ? ", or " : " and ") + port_of(others[i]);
  if (named < others.size()) out += " and " + std::to_string(others.size() - named) + " more";
  return out + ". " + Membership::kWhatToOpen;
}

void PeerFindings::see_founders(const std::vector<PeerId>& waiting, Delay delay) {
  const NotAdmitted why =
      texts_.why_waiting(waiting[0], delay, group_.notices().last_obstacle(), reader());
  const Duration time = ticks(view_.membership.find(waiting[0])->waiting_ticks);
  found_.push_back({FindingCode::kAloneWaitingForFounders, Severity::kError, names(waiting),
                    texts_.not_admitted(waiting[0], why.reason) + waited(time),
                    why.advice.empty() ? Membership::kWhatToOpen : why.advice});
}

void PeerFindings::see_shortage() {
  const auto& members = view_.membership.members();
  if (members.empty() || members.size() >= view_.quorum.min_peers) return;
  const std::string next = WaitTexts::start_more(view_.quorum.min_peers - members.size());
  if (view_.epochs.waits_for_peers()) {
    Instant since = view_.context.now;
    for (const PeerId member : members)
      since = std::min(since, view_.membership.find(member)->last_call.at);
    found_.push_back({FindingCode::kBelowMinPeers, Severity::kError, names(members),
                      texts_.why_hindered(members[0]) + waited(view_.context.now - since), next});
  } else if (view_.epochs.broken()) {
    found_.push_back({FindingCode::kBelowMinPeers, Severity::kWarning, names(members),
                      shortage_text(members.size(), view_.quorum.min_peers), next});
  }
}

void PeerFindings::see_drifts() {
  for (const auto& [peer, drift] : view_.agreement.drifts().all()) {
    PCCL_ASSERT(view_.agreement.recorded() &&
                drift.revision <= view_.agreement.recorded()->revision);
    const uint64_t since = view_.agreement.recorded()->revision - drift.revision;
    if (!view_.membership.is_member(peer) || since > kDriftShownMax) continue;
    found_.push_back({FindingCode::kStatesDiffer, Severity::kWarning, names({peer}),
                      protocol::drift_text(view_.membership.describe(peer), drift),
                      protocol::kDriftAdvice});
  }
}

void PeerFindings::see_slow_member() {
  const auto slow = view_.present.latecomers().slow();
  if (!slow || !view_.membership.is_member(slow->who)) return;
  const std::string name = view_.membership.name(slow->who);
  found_.push_back(
      {FindingCode::kSlowPeer,
       Severity::kWarning,
       {name},
       view_.membership.describe(slow->who) + " was the last to call in " +
           std::to_string(slow->times) + " of the last " + std::to_string(Latecomers::kCalls) +
           " calls: all others have waited for it for " + text(slow->cost) + " of " +
           text(slow->over),
       "look at the load of the machine of " + name +
           "; if it is as fast as it can be, give it less work between two calls, for example a "
           "smaller batch or fewer inner steps"});
}

void PeerFindings::see_recovery() {
  std::vector<PeerId> away;
  std::vector<uint32_t> ranks;
  int longest = 0;
  for (const PeerId member : view_.membership.members()) {
    const Membership::Peer& about = *view_.membership.find(member);
    if (about.connected) continue;
    away.push_back(member);
    ranks.push_back(*view_.membership.rank(member));
    longest = std::max(longest, about.away_ticks);
  }
  if (away.empty()) return;
  const bool all = away.size() == view_.membership.members().size();
  const std::string text = all ? texts_.why_members_are_awaited()
                               : "the master was started again " + pccl::text(ticks(longest)) +
                                     " ago, and " + view_.membership.ranks_text(ranks) +
                                     (ranks.size() == 1 ? " is" : " are") +
                                     " not back yet: a member that does not come back within " +
                                     pccl::text(timeout()) + " is lost";
  found_.push_back({FindingCode::kMasterRecovering, Severity::kError, names(away), text,
                    "wait " + pccl::text(timeout() - ticks(longest)) +
                        ": each process that still runs comes back by itself"});
}

void PeerFindings::see_silence(PeerId peer, const Membership::Peer& about) {
  const int silent = about.connected ? view_.connections.silent_ticks(peer) : about.away_ticks;
  if (silent <= (about.connected ? Connections::kSilentTicks : kAwayMax)) return;
  const std::string how = about.connected ? " has been silent for " : " has been away for ";
  const Severity severity =
      view_.membership.is_member(peer) ? Severity::kError : Severity::kWarning;
  found_.push_back({FindingCode::kPeerSilent, severity, names({peer}),
                    view_.membership.describe(peer) + how + text(ticks(silent)) +
                        ": it is lost after " + text(timeout()) + " (peer_timeout)",
                    "look at its process and its network; without a message within " +
                        text(timeout() - ticks(silent)) + " the others continue without it"});
}

}  // namespace

std::vector<Finding> peer_findings(const Group& group) { return PeerFindings(group).all(); }

}  // namespace pccl::master
