#include "master/diagnosis/diagnosis.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "csrc/base/assert.h"
#include "master/context.h"
#include "master/diagnosis/link_findings.h"
#include "master/diagnosis/peer_findings.h"
#include "master/diagnosis/refusal_findings.h"
#include "master/diagnosis/wait_findings.h"
#include "master/group/groups.h"
#include "master/run_view.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

void append(std::vector<Finding>& all, std::vector<Finding> more, GroupId group) {
  for (Finding& one : more) {
    PCCL_ASSERT(!one.text.empty() && !one.next.empty());
    if (group != GroupId{})
      one.text = "peer group " + std::to_string(group.value) + ": " + one.text;
    all.push_back(std::move(one));
  }
}

Finding nothing_wrong(const RunView& view) {
  size_t members = 0, waiting = 0;
  double operations = 0, bytes = 0;
  Duration over{0};
  for (const auto& [id, group] : view.groups.all()) {
    members += group.view().membership.members().size();
    waiting += group.view().membership.waiting().size();
    const Statistics::Rate rate = group.view().present.statistics().rate(view.context.now);
    operations += rate.operations;
    bytes += rate.bytes;
    over = std::max(over, rate.over);
  }
  std::string text = members == 0 ? "the run has no members" : "nothing stands still: the run has ";
  if (members > 0) text += count_text(members, "member");
  if (waiting > 0) text += ", and " + count_text(waiting, "peer") + " about to be admitted";
  if (operations > 0) {
    char count[32];
    std::snprintf(count, sizeof count, "%.3g", operations);
    text += std::string(", which have committed ") + count + " operations/s with " +
            rate_text(bytes) + " in the last " + pccl::text(over);
  }
  return {
      FindingCode::kNothingWrong, Severity::kNote, {}, std::move(text), "nothing has to be done"};
}

}  // namespace

std::vector<Finding> diagnose(const RunView& view) {
  std::vector<Finding> all = refusal_findings(view.context);
  for (const auto& [id, group] : view.groups.all()) {
    append(all, peer_findings(group), id);
    append(all, wait_findings(view.groups, group), id);
    append(all, link_findings(group), id);
  }
  const bool well = std::all_of(all.begin(), all.end(),
                                [](const Finding& one) { return one.severity == Severity::kNote; });
  if (well) all.insert(all.begin(), nothing_wrong(view));
  std::stable_sort(all.begin(), all.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return all;
}

}  // namespace pccl::master
