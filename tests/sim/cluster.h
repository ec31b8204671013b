// Cluster: the peers of a simulated run, in one or two peer groups, each with its workload. It
// knows which peers exist, which of them faults may hit, and how many must stay. The Driver owns
// it. Everything in it is a function of the seed.
#pragma once

#include <map>
#include <vector>

#include "tests/sim/checker.h"
#include "tests/sim/workload.h"

namespace pccl::sim {

// peer_timeout of the run. Many fault durations are multiples of it.
constexpr Duration kPeerTimeout = std::chrono::seconds(2);
constexpr size_t kPeersMax = 9;    // peers in the run at a time
constexpr size_t kBornMax = 1000;  // peers created in a whole run

class Cluster {
 public:
  struct Rules {
    bool retries = false;  // policy retry
    protocol::PatternChoice pattern = protocol::PatternChoice::kAny;
    // Only faults that cost no membership: links break, short network cuts heal. They may not make
    // any operation fail.
    bool gentle = false;
    // Groups without a shared state. All members of such a group may be lost; the group then starts
    // anew.
    bool mortal = false;
    Duration call_timeout{0};
    protocol::RunSettings settings() const {
      return {.on_peer_loss = retries ? protocol::LossPolicy::kRetry : protocol::LossPolicy::kRaise,
              .pattern = pattern,
              .peer_timeout = kPeerTimeout,
              .first_call_timeout = kPeerTimeout,
              .call_timeout = call_timeout};
    }
    uint64_t seed = 1;
    // The number of the peer that lies to the master (insider.h). No fault hits it.
    std::optional<size_t> insider = {};
  };
  struct Group {
    uint32_t founders = 1, min_peers = 1;
    bool quiet = false;  // no fault hits this group, and it may not notice those of the other
    // A peer that holds the shared state and that no fault may remove. It is chosen as soon as
    // possible: otherwise the state could be lost with its last holder. Null: not chosen yet.
    PeerNode* immortal = nullptr;
    bool forgotten = false;  // a peer of it has skipped a step of the others
  };
  // Limit of every call. A call ends in time even if one peer after another is lost meanwhile.
  static constexpr Duration kCallTimeout = std::chrono::seconds(60);

  Cluster(World& world, Checker& checker, const Rules& rules, std::vector<Group> groups)
      : world_(world), checker_(checker), rules_(rules), groups_(std::move(groups)) {}

  const Rules& rules() const { return rules_; }
  std::vector<Group>& groups() { return groups_; }
  Group& group_of(const PeerNode& peer) { return groups_[peer.group().value]; }
  static Workload& workload(PeerNode& peer) { return static_cast<Workload&>(peer.app()); }

  // `joins`: if false, the peer is created, but never calls join.
  PeerNode& add(size_t group, bool joins = true, Mistake mistake = Mistake::kNone);
  bool room() const { return all().size() < kPeersMax && world_.peers().size() < kBornMax; }

  // Peers that are alive, not gone, honest and reachable, and that joined or will join.
  std::vector<PeerNode*> all() const;
  std::vector<PeerNode*> of_group(size_t group) const;
  std::vector<PeerNode*> others(const PeerNode& peer) const;  // the other peers of its group
  // Whether a fault that was caused before may cost this peer its membership.
  bool unsure(PeerNode& peer) const;
  // Whether the peer has the state of its group, or is a founder of it.
  static bool holds(PeerNode& peer);
  // Whether no fault may cost this peer its membership.
  bool spared(const PeerNode& peer) const;
  // For the duration `until` the others cannot reach this peer, which answers the master. If two
  // members cannot reach each other, either may be lost. So two sure members stay as long as the
  // peer does: each has one dead link, and the peer has two.
  void cut_off(const PeerNode& peer, Duration until);
  // The other members of its group that stay if nothing else happens.
  std::vector<PeerNode*> sure_others(const PeerNode& peer) const;
  // Whether enough members of its group are left if this peer is lost.
  bool may_lose(const PeerNode& peer) const;
  // Marks the peer: for the duration `until` a fault may cost its membership, or it is lost
  // already.
  void at_risk(const PeerNode& peer, Duration until);
  bool at_risk(const PeerNode& peer) const;
  // No peer of this group is at risk.
  bool calm(size_t group) const;
  // Whether a peer of this group, present or gone, is at risk, so that others may not reach it.
  bool troubled(size_t group) const;

  // If no member is left with which a mistaken newcomer could be compared, the newcomer counts as a
  // founder would. In reality a person ends such a process; here this function does.
  void end_unjudged(size_t group);
  // Counts an event for which a call may have to wait.
  void disturb() { ++disturbances_; }
  // At the end of its turn, the peer computes for so much longer than usual: it is late.
  void be_late(PeerNode& peer, Duration time);
  // Checks what holds although a member lies: it costs at most one honest member, and this one only
  // together with the liar, or with an error that names it. No honest member breaks a rule.
  // `alone`: there are no faults that would cost members, too. REQUIRES: there is an insider.
  void check_insider(bool alone);
  uint64_t mistakes_checked() const { return mistakes_checked_; }
  uint64_t late_checked() const { return late_checked_; }

  // Chooses one immortal peer per group as soon as one can be chosen. Reports a violation if an
  // immortal peer is out of the run, unless the reason names the liar.
  void choose_immortals();

 private:
  // Whether a member is cut off, and without this one too few would show which member that is.
  bool is_witness(const PeerNode& peer) const;
  // Whether a peer in `members` makes no mistake and was already compared with others.
  static bool has_judge(const std::vector<PeerNode*>& members);
  bool excused(const PeerNode& peer) const;
  void made_mistake(PeerNode& peer);
  // A peer that others may have to wait for, from `made` on, for at most `limit`.
  struct Delay {
    std::string what;
    Instant made;
    Duration limit;
    uint64_t* checked;  // counts the checks
  };
  void watch(PeerNode& peer, const Delay& delay);
  void check(PeerNode& peer, const std::vector<PeerNode*>& waiting, const Delay& delay);

  World& world_;
  Checker& checker_;
  Checker lies_ = checker_.for_liar();  // what the insider observes does not count
  const Rules rules_;
  std::vector<Group> groups_;
  std::map<const PeerNode*, Instant> at_risk_, cut_off_;
  uint64_t disturbances_ = 0, mistakes_checked_ = 0, late_checked_ = 0;
};

}  // namespace pccl::sim
