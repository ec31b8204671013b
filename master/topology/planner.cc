#include "master/topology/planner.h"

#include <algorithm>
#include <numeric>

#include "csrc/base/assert.h"
#include "csrc/protocol/shares.h"
#include "master/topology/pattern_choice.h"
#include "master/topology/share_search.h"

namespace pccl::master::topology {

Plan fastest_plan(const PlanQuestion& question) {
  using protocol::PatternChoice;
  const Network& network = question.network;
  const size_t members = network.paths.members();
  PCCL_ASSERT(members >= 2);
  Plan plan;
  plan.ring = fastest_ring(network.paths, question.bytes, question.effort).order;
  // Two members exchange their tensors, which is faster than both patterns.
  const bool few = members == 2 && question.pattern == PatternChoice::kAny;
  if (question.pattern == PatternChoice::kRing || few || !question.may_be_direct) return plan;
  std::vector<uint16_t> shares =
      protocol::are_shares(question.shares, members) ? question.shares : fastest_shares(network);
  if (question.pattern == PatternChoice::kAny) {
    const auto sizes = direct_sizes(network, plan.ring, shares);
    if (!sizes) return plan;
    plan.direct = *sizes;
  }
  plan.shares = std::move(shares);
  return plan;
}

namespace {

bool is_direct(const Plan& plan, double bytes) {
  return !plan.shares.empty() && plan.direct.contain(static_cast<uint64_t>(bytes));
}

}  // namespace

double plan_seconds(const Network& network, const Plan& plan, double bytes) {
  return is_direct(plan, bytes) ? direct_seconds(network, plan.shares, bytes)
                                : ring_seconds(network, plan.ring, bytes);
}

double cautious_seconds(const Network& network, const Plan& plan, double bytes) {
  const double excess = is_direct(plan, bytes) ? direct_excess(network.paths.members()) : 1;
  return excess * plan_seconds(network, plan, bytes);
}

}  // namespace pccl::master::topology
