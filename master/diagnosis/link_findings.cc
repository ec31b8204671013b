#include "master/diagnosis/link_findings.h"

#include <algorithm>
#include <utility>

#include "csrc/protocol/keepalive_timer.h"
#include "master/context.h"
#include "master/group/group.h"
#include "master/group/ring_links.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

// Fewer known rates have no median that means something.
constexpr size_t kRatesMin = 3;
// At most this number of links is named.
constexpr size_t kLinksNamed = 4;

std::vector<Finding> down_links(const GroupView& view) {
  std::vector<Finding> all;
  const Membership& membership = view.membership;
  const Duration tick = protocol::tick_of(view.context.settings.peer_timeout);
  for (const Links::Dead& dead : membership.links.dead(1)) {
    if (!membership.is_member(dead.a) || !membership.is_member(dead.b)) continue;
    if (all.size() == kLinksNamed) break;
    all.push_back({FindingCode::kLinkDown,
                   Severity::kError,
                   {membership.name(dead.a), membership.name(dead.b)},
                   membership.down_text(membership.describe(dead.a), dead.b, dead.text) +
                       "; that has lasted for " + text(dead.ticks * tick),
                   "look at the network between " + membership.name(dead.a) + " and " +
                       membership.name(dead.b) +
                       ": they connect again by themselves, or one of them is lost after " +
                       text(Membership::kLinkDownTicks * tick)});
  }
  return all;
}

std::vector<Finding> slow_links(const GroupView& view) {
  const std::vector<RingLink> ring = ring_links(view);
  std::vector<uint64_t> rates;
  for (const RingLink& link : ring) {
    if (link.rate > 0) rates.push_back(link.rate);
  }
  if (rates.size() < kRatesMin) return {};
  const auto middle = rates.begin() + static_cast<ptrdiff_t>(rates.size() / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  std::vector<Finding> all;
  for (const RingLink& link : ring) {
    if (link.rate == 0 || link.rate >= *middle / 2 || all.size() == kLinksNamed) continue;
    const Membership& membership = view.membership;
    all.push_back({FindingCode::kSlowLink,
                   Severity::kNote,
                   {membership.name(link.from), membership.name(link.to)},
                   "the link from " + membership.describe(link.from) + " to " +
                       membership.describe(link.to) + " carries " +
                       rate_text(static_cast<double>(link.rate)) +
                       ", less than half of the median of the ring, which is " +
                       rate_text(static_cast<double>(*middle)),
                   "measure the path with `pccl probe`, or let all members call "
                   "pccl.optimize_topology()"});
  }
  return all;
}

}  // namespace

std::vector<Finding> link_findings(const Group& group) {
  const GroupView& view = group.view();
  std::vector<Finding> all = down_links(view);
  for (Finding& one : slow_links(view)) all.push_back(std::move(one));
  if (view.epochs.phase() != Epochs::Phase::kActive) return all;
  const auto share = group.optimization().best_share(view.present.start());
  if (share && *share < topology::Hysteresis::kMuchFaster) {
    all.push_back({FindingCode::kPlanOutdated,
                   Severity::kNote,
                   {},
                   std::string(PlanCall::kBetterPlan) + ": an all-reduce would take " +
                       std::to_string(static_cast<int>(*share * 100)) + " % of its present time",
                   "let all members call pccl.optimize_topology()"});
  }
  return all;
}

}  // namespace pccl::master
