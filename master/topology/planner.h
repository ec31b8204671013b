// planner: how large all-reduces are to travel in a group: the order of its ring, the shares of the
// direct pattern, and the sizes for which each is faster. It combines ring_planner.h,
// share_search.h and pattern_choice.h. Pure functions: the same network and effort give the same
// plan.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/protocol/messages.h"
#include "master/topology/pattern_time.h"
#include "master/topology/plan.h"

namespace pccl::master::topology {

// The size of all-reduces for which a ring is planned, and for which two plans are compared.
// Trainers reduce buckets and parameters of some tens of MiB at a time.
constexpr double kPlannedBytes = 64 << 20;
constexpr double kGiB = 1 << 30;

struct PlanQuestion {
  Network network;
  protocol::PatternChoice pattern = protocol::PatternChoice::kAny;
  std::vector<uint16_t> shares;  // that are wanted; empty: the fastest ones
  bool may_be_direct = true;     // without, there is only the ring
  Effort effort;
};

// REQUIRES: two members or more.
Plan fastest_plan(const PlanQuestion& question);
// Seconds that an all-reduce of so many bytes takes.
double plan_seconds(const Network& network, const Plan& plan, double bytes);

}  // namespace pccl::master::topology
