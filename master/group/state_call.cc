#include "master/group/state_call.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/assert.h"
#include "master/group/ballot.h"
#include "master/group/group_view.h"
#include "master/group/overdue_members.h"
#include "master/group/wait_texts.h"
#include "master/members/membership.h"
#include "master/state/agreement.h"

namespace pccl::master {

using protocol::JointKind;

// Without a recorded state no member has synced here, so a member that has taken part in a joint
// call or a collective counts as trained.
bool StateCall::was_trained_here(PeerId member) const {
  using protocol::Standing;
  const Standing needed = agreement_.recorded() ? Standing::kSynced : Standing::kCalled;
  return view_.membership.find(member)->standing >= needed && !overdue_.was_new_to_sync(member);
}

Ruling StateCall::begin() {
  PCCL_ASSERT(view_.ballot.is_complete(JointKind::kSyncSharedState));
  const auto& members = view_.membership.members();
  std::vector<OfferOf> offers;
  offers.reserve(members.size());
  for (const PeerId member : members) {
    offers.push_back({member, &view_.ballot.vote(member).offer, was_trained_here(member),
                      view_.membership.find(member)->name});
  }
  const uint32_t number = view_.ballot.vote(members[0]).number;
  if (agreement_.asks_for_lists(offers, number)) return gave_up_ ? give_up() : Ruling{};
  agreement_.add_lists_to(offers);
  Ruling ruling{misfits(offers, agreement_.recorded()), {}};
  if (!ruling.empty()) return ruling;
  if (std::any_of(offers.begin(), offers.end(), [](const auto& one) { return one.trained; })) {
    for (const OfferOf& one : offers) {
      if (!one.trained) overdue_.add_new_to_sync(one.peer);
    }
  }
  ruling.answer = agreement_.begin(offers, number);
  const bool fetches = !agreement_.fetching().empty();
  return gave_up_ && !ruling.answer && fetches ? give_up() : ruling;
}

Ruling StateCall::give_up() {
  Ruling ruling;
  if (agreement_.recording()) return ruling;  // agreed: the answer is on its way
  std::set<PeerId> awaited = agreement_.awaited();
  const bool none = awaited.empty();
  // A lost member stays in `awaited` until its epoch ends.
  std::erase_if(awaited, [this](PeerId peer) { return !view_.membership.is_member(peer); });
  // The newcomers that were awaited have been removed. The members vote again and give up again, so
  // nothing is due now.
  if (gave_up_ && none) return ruling;
  const bool lists = agreement_.fetching().empty();
  const std::string what =
      lists ? "did not send the list of entries" : "did not receive the whole state";
  const bool all_new = std::all_of(awaited.begin(), awaited.end(),
                                   [this](PeerId peer) { return overdue_.is_new_to_sync(peer); });
  if (none) {
    const WaitTexts texts(view_);
    const bool waits = !view_.ballot.is_complete();
    ruling.answer =
        Ballot::timeout(waits ? "it waited for " + texts.missing(view_.ballot.missing()) : "");
  } else if (all_new) {
    gave_up_ = true;
    for (const PeerId peer : awaited) {
      ruling.misfits.push_back({peer, "it " + what + " within the timeout of the others", false});
    }
  } else {
    std::vector<uint32_t> ranks;
    ranks.reserve(awaited.size());
    for (const PeerId peer : awaited) ranks.push_back(*view_.membership.rank(peer));
    std::sort(ranks.begin(), ranks.end());
    ruling.answer = Ballot::timeout(view_.membership.ranks_text(ranks) + " " + what);
  }
  return ruling;
}

}  // namespace pccl::master
