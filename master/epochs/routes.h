// routes: the ring and the pattern in which large tensors pass between the members of an epoch.
// They follow from the links between the members. Pure functions of the links and of the members in
// rank order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/messages.h"
#include "master/members/links.h"
#include "master/topology/planner.h"

namespace pccl::master {

// The rank of the peer; the number of the members if the peer is not a member.
uint32_t rank_in(const std::vector<PeerId>& members, PeerId peer);

// Whether every two members have a link that is up.
bool is_mesh(const Links& links, const std::vector<PeerId>& members);

// The longest RTT, in microseconds: between neighbours in the ring (`members` is in ring order), or
// between any two members.
uint32_t longest_rtt_in_ring(const Links& links, const std::vector<PeerId>& members);
uint32_t longest_rtt_in_mesh(const Links& links, const std::vector<PeerId>& members);

// The shares of the direct pattern. `wanted` if it has one share per member, with the right sum;
// otherwise equal shares.
std::vector<uint16_t> shares_of(const std::vector<uint16_t>& wanted, size_t members);

// The network between these members, as their links have shown it; nothing if the rate or the RTT
// of any pair is unknown. The links of a member were not all measured at the same time. So the rate
// of its fastest link, in each direction, counts as the rate of all its links together. Trunks are
// guessed (topology/trunk_guess.h).
std::optional<topology::Network> network_of(const Links& links, const std::vector<PeerId>& members);

// The same with guesses for the unknown rates. A near path with an unknown rate has no limit. Any
// other unknown path gets 0.7 x min(best rate out of its sender, best rate into its receiver). A
// path without a link has next to no rate.
topology::Network guessed_network(const Links& links, const std::vector<PeerId>& members);

// Doubts: computes how doubtful the rates of paths are. Both arguments must outlive it, and must
// not change meanwhile.
class Doubts {
 public:
  Doubts(const Links& links, const std::vector<PeerId>& members);
  // The best known rate out of the peer `from` or the best known rate into the peer `to`, whichever
  // is lower, divided by the rate of this path. Near paths do not count as the best, because they
  // are faster than any uplink. The doubt is 0 for a near path, and for an unknown rate.
  double of(PeerId from, PeerId to) const;

 private:
  const Links& links_;
  const std::vector<PeerId>& members_;
  std::vector<double> out_, in_;  // the best rate out of each member, and into it
};

// The wanted pattern of large all-reduces.
struct PatternWish {
  protocol::PatternChoice pattern = protocol::PatternChoice::kAny;
  std::vector<uint16_t> shares = {};  // by rank; used if there is one per member
};
// A plan for these members, in rank order.
struct RoutePlan {
  std::vector<PeerId> members;
  topology::Plan plan;
};
// The plan that `start` has.
topology::Plan plan_of(const protocol::EpochStart& start);
// The question for the planner. The direct pattern loads all paths, so it is excluded if two
// members have no link, or if no rate is known out of a member, or none into it. `bytes`: the size
// of the all-reduces that the plan is made for.
topology::PlanQuestion question_of(topology::Network network, const Links& links,
                                   const std::vector<PeerId>& members, const PatternWish& wish,
                                   double bytes);

// The inputs of ring_order() and set_routes() that come from the previous epoch.
struct RoutesBefore {
  const protocol::EpochStart* start = nullptr;  // of the previous epoch; null: there was none
  const RoutePlan* plan = nullptr;              // the adopted plan for the new epoch; null: none
  // Returns the plan if it was made for these members, otherwise null.
  const topology::Plan* plan_for(const std::vector<PeerId>& members) const {
    return plan != nullptr && plan->members == members ? &plan->plan : nullptr;
  }
};
// Sets the shares of `start`, the all-reduces that use them, and the RTT. REQUIRES: it has a ring
// (ring_order.h).
// - If `before` has a plan for its members, the plan decides.
// - Without a wish, all-reduces use the direct pattern if the paths of all pairs are known, and
//   this pattern is predicted to be faster by enough (pattern_choice.h). If the same members use it
//   already, they keep its shares and sizes: otherwise the noise of the rates would change these at
//   each new link. Only a plan that was worth a change (hysteresis.h) replaces them.
void set_routes(protocol::EpochStart& start, const Links& links, const PatternWish& wish,
                const RoutesBefore& before = {});

}  // namespace pccl::master
