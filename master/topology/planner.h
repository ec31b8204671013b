// planner: the plan of large all-reduces in a group: the order of its ring, the shares of the
// direct pattern, and the range of sizes that is faster in this pattern. It combines
// ring_planner.h, share_search.h and pattern_choice.h. Pure functions: the same network and effort
// give the same plan.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/protocol/messages.h"
#include "master/topology/pattern_time.h"
#include "master/topology/plan.h"

namespace pccl::master::topology {

constexpr double kGiB = 1 << 30;

struct PlanQuestion {
  Network network;
  protocol::PatternChoice pattern = protocol::PatternChoice::kAny;
  std::vector<uint16_t> shares;  // the wanted shares; empty: the fastest ones
  bool may_be_direct = true;     // false: only the ring is considered
  double bytes = kGiB;           // size of the all-reduces that the ring is planned for
  Effort effort;
};

// REQUIRES: two members or more.
Plan fastest_plan(const PlanQuestion& question);
// The predicted seconds of an all-reduce of `bytes`.
double plan_seconds(const Network& network, const Plan& plan, double bytes);
// Like plan_seconds(), for the comparison of plans. A direct all-reduce is assumed to be slower
// than predicted, by the factor direct_excess() (pattern_choice.h). Otherwise a group would change
// to the direct pattern as soon as noise makes this pattern seem faster.
double cautious_seconds(const Network& network, const Plan& plan, double bytes);

}  // namespace pccl::master::topology
