// Cast: the peers of a simulated run, in one or two peer groups, with their workloads: who there
// is, whom faults may hit, and how many must be left. Everything is a function of the seed.
#pragma once

#include <map>
#include <vector>

#include "tests/sim/checker.h"
#include "tests/sim/workload.h"

namespace pccl::sim {

// Of all peers, times that faults are measured by.
constexpr Duration kPeerTimeout = std::chrono::seconds(2);
constexpr size_t kPeersMax = 9;    // at a time,
constexpr size_t kBornMax = 1000;  // and in all

class Cast {
 public:
  struct Rules {
    bool retries = false;  // policy retry
    // Links break and short cuts heal, nobody goes: no operation may fail for it.
    bool gentle = false;
    // Groups without a shared state: all of one may go, and it begins anew.
    bool mortal = false;
    uint64_t seed = 1;
  };
  struct Group {
    uint32_t founders = 1, min_peers = 1;
    bool quiet = false;  // faults hit the other group: this one may not notice
    // One founder is spared from when there are some: else the shared state could die with its last
    // holder.
    PeerNode* immortal = nullptr;
  };
  Cast(World& world, Checker& checker, const Rules& rules, std::vector<Group> groups)
      : world_(world), checker_(checker), rules_(rules), groups_(std::move(groups)) {}

  const Rules& rules() const { return rules_; }
  std::vector<Group>& groups() { return groups_; }
  Group& group_of(const PeerNode& peer) { return groups_[peer.group().value]; }
  static Workload& workload(PeerNode& peer) { return static_cast<Workload&>(peer.app()); }

  // `joins`: else it is only made, and never calls join.
  PeerNode& add(size_t group, bool joins = true, Mistake mistake = Mistake::kNone);
  bool room() const { return all().size() < kPeersMax && world_.peers().size() < kBornMax; }

  // Alive, in the run or about to be, and within reach.
  std::vector<PeerNode*> all() const;
  std::vector<PeerNode*> of_group(size_t group) const;
  std::vector<PeerNode*> others(const PeerNode& peer) const;  // of its group
  // It has, or will have, the state of its group.
  static bool holds(PeerNode& peer);
  // Nothing that happens to it may cost it its membership.
  bool spared(const PeerNode& peer) const;
  // Enough of its group are left if it goes.
  bool may_lose(const PeerNode& peer) const;
  // What happens to it until then may cost it its membership, or already has.
  void at_risk(const PeerNode& peer, Duration until);
  bool at_risk(const PeerNode& peer) const;
  // Nobody of this group is at risk.
  bool calm(size_t group) const;
  // Something happens to a peer of this group, or to one that has gone, for which others may not
  // reach it.
  bool troubled(size_t group) const;

  // If nobody is left with whom a wrong newcomer could be compared, it is like a founder: a person
  // ends it.
  void end_unjudged(size_t group);
  // Something has happened that a call may have to wait for.
  void disturb() { ++disturbances_; }
  uint64_t mistakes_checked() const { return mistakes_checked_; }

  // As soon as there are founders, one of each group is spared. A violation if one is out.
  void choose_immortals();

 private:
  // One of them is known to do what all do.
  static bool has_judge(const std::vector<PeerNode*>& members);
  bool excused(const PeerNode& peer) const;
  void made_mistake(PeerNode& peer);
  void check_mistake(PeerNode& peer, const std::vector<PeerNode*>& waiting, Instant made,
                     Duration limit);

  World& world_;
  Checker& checker_;
  const Rules rules_;
  std::vector<Group> groups_;
  std::map<const PeerNode*, Instant> at_risk_;
  uint64_t disturbances_ = 0, mistakes_checked_ = 0;
};

}  // namespace pccl::sim
