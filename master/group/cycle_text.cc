#include "master/group/cycle_text.h"

#include <algorithm>

#include "csrc/protocol/limits.h"
#include "master/epochs/operation_waits.h"
#include "master/epochs/present_epoch.h"
#include "master/members/membership.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

// "rank 0 (tokyo) waits in all_reduce(...) (a, #0) in epoch 1.5, which rank 1 (osaka) has not
// called".
std::string link_text(const GroupView& view, const WaitLink& link) {
  std::string call, verb = "called";
  if (const auto* const kind = std::get_if<protocol::JointKind>(&link.call)) {
    call = protocol::text(*kind);
  } else if (const OpKey op = std::get<OpKey>(link.call); view.present.operations().knows(op)) {
    const OperationWaits waits = view.present.waits();
    call = waits.name(op);
    if (view.present.operations().is_transfer(op))
      verb = waits.awaits_sender(op) ? "sent" : "received";
  } else {
    call = "an operation that has ended";
  }
  return view.membership.ranks_text({link.rank}) + " waits in " + call + ", which " +
         view.membership.ranks_text({link.awaited}) + " has not " + verb;
}

}  // namespace

std::string cycle_text(const GroupView& view, const WaitCycle& cycle) {
  const size_t named = std::min(cycle.size(), protocol::kRanksNamedMax);
  std::string out = "the ranks wait for each other: ";
  for (size_t i = 0; i < named; ++i) {
    out += (i == 0 ? "" : "; ") + link_text(view, cycle[i]);
  }
  if (named < cycle.size()) out += "; and " + count_text(cycle.size() - named, "more rank");
  return out;
}

}  // namespace pccl::master
