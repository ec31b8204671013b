#include "master/diagnosis/wait_findings.h"

#include <algorithm>
#include <utility>

#include "master/context.h"
#include "master/group/awaited_calls.h"
#include "master/group/cycle_text.h"
#include "master/group/cycle_watch.h"
#include "master/group/groups.h"
#include "master/group/wait_texts.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

// The members that have not made the call, by group, in the order of their ranks.
std::vector<std::pair<const GroupView*, PeerId>> absent_members(const Groups& groups,
                                                                const AwaitedCall& call) {
  std::vector<std::pair<const GroupView*, PeerId>> all;
  for (const Absent& absent : call.absent) {
    const GroupView& view = groups.find(absent.group)->view();
    for (const PeerId member : view.membership.members()) {
      const auto& ranks = absent.ranks;
      if (std::find(ranks.begin(), ranks.end(), view.membership.rank(member)) != ranks.end())
        all.emplace_back(&view, member);
    }
  }
  return all;
}

std::vector<uint32_t> ranks_of(const Membership& membership, const std::vector<PeerId>& members) {
  std::vector<uint32_t> ranks;
  for (const PeerId member : members) {
    if (const auto rank = membership.rank(member)) ranks.push_back(*rank);
  }
  return ranks;
}

// The code, the severity and the next step; the caller sets the text.
Finding finding_of(const Groups& groups, const GroupView& view, const AwaitedCall& call) {
  Finding finding{FindingCode::kRankHasNotCalled, Severity::kError, {}, {}, {}};
  const auto absent = absent_members(groups, call);
  bool differs = call.is_facing;
  for (const auto& [of, member] : absent) {
    differs |= of->blocks_others(member);
    if (finding.whom.size() < protocol::kRanksNamedMax)
      finding.whom.push_back(of->membership.name(member));
  }
  if (differs) {
    finding.code = FindingCode::kDifferentCalls;
    finding.next =
        "end the run, and correct the program where the named ranks make different calls: a stack "
        "of each process (`py-spy dump --pid PID`) shows its line";
  } else if (!absent.empty()) {
    const auto& [of, member] = absent[0];
    finding.next = "look at the process of " + of->membership.describe(member) +
                   ", for example with `py-spy dump --pid PID`: it must make this call, or end";
  } else if (view.epochs.phase() == Epochs::Phase::kFreezing) {
    finding.next =
        "look at the machines of the named ranks: if one of them does not answer, it "
        "is lost after " +
        text(view.context.settings.peer_timeout);
  } else {
    finding.code = FindingCode::kOperationsInFlight;
    finding.severity = Severity::kNote;
    finding.next = "nothing has to be done: the call begins when these operations have ended";
  }
  return finding;
}

// A member that is not certain to be stuck may still continue by itself.
std::vector<Finding> cycle_findings(const GroupView& view) {
  std::vector<Finding> all;
  for (const CycleWatch::Cycle& cycle : view.cycle_watch.cycles()) {
    Finding finding{FindingCode::kWaitCycle,
                    cycle.certain ? Severity::kError : Severity::kWarning,
                    {},
                    cycle_text(view, cycle.links),
                    kCycleAdvice};
    for (const WaitLink& link : cycle.links) {
      if (finding.whom.size() < protocol::kRanksNamedMax)
        finding.whom.push_back(view.membership.name(view.membership.members()[link.rank]));
    }
    all.push_back(std::move(finding));
  }
  return all;
}

}  // namespace

std::vector<Finding> wait_findings(const Groups& groups, const Group& group) {
  const GroupView& view = group.view();
  std::vector<Finding> all = cycle_findings(view);
  for (AwaitedCall& call : awaited_calls(groups, group)) {
    Finding finding = finding_of(groups, view, call);
    const Wait wait = described(groups, group, std::move(call));
    if (!group.notices().has_announced(wait)) continue;
    const auto ranks = ranks_of(view.membership, wait.waiting);
    if (!ranks.empty()) {
      finding.text = view.membership.ranks_text(ranks) + (ranks.size() == 1 ? " waits" : " wait") +
                     ": " + wait_text(wait, view.context.now);
    } else {
      finding.text = wait_text(wait, view.context.now);
    }
    all.push_back(std::move(finding));
  }
  return all;
}

}  // namespace pccl::master
