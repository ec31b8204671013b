// routes: how large tensors pass between the members of an epoch, as it follows from the links
// between them. Pure functions of the links and of the members in rank order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/messages.h"
#include "master/members/links.h"
#include "master/topology/planner.h"

namespace pccl::master {

// Whether each member is linked with each other one.
bool is_mesh(const Links& links, const std::vector<PeerId>& members);

// The longest RTT between neighbours in the ring, or between any two members, in microseconds.
uint32_t longest_rtt_in_ring(const Links& links, const std::vector<PeerId>& members);
uint32_t longest_rtt_in_mesh(const Links& links, const std::vector<PeerId>& members);

// The shares of the direct pattern. `wanted` if there is one per member with the right sum;
// otherwise equal ones.
std::vector<uint16_t> shares_of(const std::vector<uint16_t>& wanted, size_t members);

// The network between these members, as their links have shown it; nothing if the rate or the RTT
// of any pair is unknown. All links of a member were not measured at once. So the rate of its
// fastest link, in each direction, counts as the rate of all its links together. Trunks are guessed
// (topology/trunk_guess.h).
std::optional<topology::Network> network_of(const Links& links, const std::vector<PeerId>& members);

// The same with guesses for the unknown rates. A near path then has no limit. Any other unknown
// path gets 0.7 x min(best rate out of its sender, best rate into its receiver). A path without a
// link has next to no rate.
topology::Network guessed_network(const Links& links, const std::vector<PeerId>& members);

// How doubtful the rates of paths are. Both arguments outlive it, and do not change meanwhile.
class Doubts {
 public:
  Doubts(const Links& links, const std::vector<PeerId>& members);
  // The best known rate of each end of this path, divided by the rate of this path; the lower of
  // the two quotients. Near paths do not count, because they are faster than any uplink. Their own
  // doubt is 0.
  double of(PeerId from, PeerId to) const;

 private:
  const Links& links_;
  const std::vector<PeerId>& members_;
  std::vector<double> out_, in_;  // the fastest known paths of each member
};

// The wanted pattern of large all-reduces.
struct PatternWish {
  protocol::PatternChoice pattern = protocol::PatternChoice::kAny;
  std::vector<uint16_t> shares = {};  // by rank, for as many members
};
// A plan for these members, in rank order.
struct RoutePlan {
  std::vector<PeerId> members;
  topology::Plan plan;
};
// The plan that `start` has.
topology::Plan plan_of(const protocol::EpochStart& start);
// The direct pattern is excluded if some members have no link, or if a member has no known rate as
// a sender or as a receiver: it loads all paths. `bytes`: of the all-reduces that the plan is made
// for.
topology::PlanQuestion question_of(topology::Network network, const Links& links,
                                   const std::vector<PeerId>& members, const PatternWish& wish,
                                   double bytes);

// The inputs of set_routes() that come from the epoch before.
struct RoutesBefore {
  const protocol::EpochStart* start = nullptr;  // of the epoch before; null: there was none
  const RoutePlan* plan = nullptr;              // that was adopted for the new one; null: none
};
// Sets the ring of `start`, its shares, the all-reduces that use them, and the RTT.
// - A plan for its members is obeyed.
// - Otherwise the order of the ring before stays. It leaves out the lost. Newcomers follow in rank
//   order; if the ring had another order, each comes where it makes the hops least longer.
// - Without a wish, all-reduces use the direct pattern if the paths of all pairs are known, and it
//   is predicted to be faster by enough (pattern_choice.h). Members that use it already keep their
//   shares and sizes: otherwise the noise of the rates would change them at each new link. Only a
//   plan for these members changes them, which hysteresis.h has found worth it.
void set_routes(protocol::EpochStart& start, const Links& links, const PatternWish& wish,
                const RoutesBefore& before = {});

}  // namespace pccl::master
