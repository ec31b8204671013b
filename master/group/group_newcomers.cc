// The part of a Group that judges its newcomers (PROTOCOL.md, section 2), and elects the shared
// state, in which they may be wrong. A mistake is found where
// votes, offers and operations are compared, and ends in remove(). A missing call is found by
// watch_newcomers(), which runs at the end of every step and when Probation says so.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "master/group/group.h"
#include "master/text_format.h"

namespace pccl::master {

using protocol::Answer;
using protocol::JointKind;

namespace {

// Ticks in which a member that lives sends something, even if it is slow.
constexpr int kSilentMax = 2 * protocol::kTicksPerPing;

const char* const kListAwaited = "sync_shared_state with the list of its entries";

}  // namespace

// The other members are informed as about any loss. The newcomer and they get a text that says what
// did not fit.
void Group::remove(const Misfit& misfit) {
  PCCL_ASSERT(membership_.is_member(misfit.peer) && !misfit.why.empty());
  std::string why = "as a newcomer it was removed: " + misfit.why;
  if (misfit.may_be_call) {
    why +=
        ". The first call of a newcomer has to be the one that the members make after "
        "update_topology, with the same model: build and load it before init_process_group";
  }
  lose(misfit.peer, why);
}

// If the kinds of the votes differ, either newcomers or all voters are wrong.
void Group::judge_votes() {
  const Ballot::Difference difference = ballot_.difference(membership_.newcomers());
  if (difference.everybodys) {
    Answer mismatch;
    mismatch.code = Code::kMismatch;
    mismatch.text = ballot_.mismatch();
    answer(mismatch);
  }
  const std::string why = difference.misfits.empty() ? "" : ballot_.mismatch();
  for (const PeerId peer : difference.misfits) remove({peer, why});
}

// If there is no record, a member can only have taken part in joint calls and collectives.
bool Group::trained_here(PeerId peer) const {
  using protocol::Standing;
  PCCL_ASSERT(membership_.is_member(peer));
  const Standing needed = agreement_.recorded() ? Standing::kSynced : Standing::kCalled;
  return membership_.find(peer)->standing >= needed;
}

// Whether each member that is no newcomer waits in a joint call, a receive or an operation.
bool Group::others_wait() const {
  const auto& members = membership_.members();
  return std::all_of(members.begin(), members.end(), [this](PeerId member) {
    const bool votes = ballot_.has_voted(member) && !goes_on(member);
    return membership_.is_newcomer(member) || votes || epochs_.operations().waits(member);
  });
}

// If all others wait for a call, it is missing because of the newcomer alone. If only some of them
// wait for it while the newcomer shares a call with another member, the others disagree among
// themselves.
Probation::Seen Group::seen_of(PeerId peer) const {
  const Operations& operations = epochs_.operations();
  const bool votes = ballot_.has_voted(peer) && !goes_on(peer);
  size_t others = 0, voted = 0;
  PeerId voter{};
  bool votes_alike = false;  // the newcomer and another member
  for (const PeerId member : membership_.members()) {
    if (membership_.is_newcomer(member)) continue;
    ++others;
    if (!ballot_.has_voted(member) || agreement_.decided()) continue;
    ++voted;
    voter = member;
    votes_alike |= votes && ballot_.vote(member).kind == ballot_.vote(peer).kind;
  }
  PCCL_ASSERT(others > 0 && membership_.is_newcomer(peer));
  Probation::Seen seen{peer, {}, {}, {}};
  if (!membership_.find(peer)->connected) return seen;
  if (agreement_.awaits_list(peer)) {
    seen.awaited = kListAwaited;
    return seen;
  }
  // All have voted, and somebody fetches the state. That is its first call, and the members whose
  // call it was may already wait for it in the next one. See see_fetching(). If it has the state
  // and has gone on, it is judged as always.
  if (votes && agreement_.for_voters()) return seen;
  const auto standoff = operations.standoff(peer, membership_.newcomers());
  seen.held_up = standoff.held_up;
  seen.instead = votes ? text(ballot_.vote(peer).kind) : standoff.alone;
  const bool shares = standoff.shares || votes_alike;
  if (!votes && voted == others) {
    seen.awaited = text(ballot_.vote(voter).kind);
    if (!shares) seen.elsewhere = standoff.alone;
  } else if (!standoff.awaited_by_all.empty()) {
    seen.awaited = standoff.awaited_by_all;
    if (!shares && votes) seen.elsewhere = text(ballot_.vote(peer).kind);
  } else if (!shares) {
    seen.awaited = voted > 0 ? text(ballot_.vote(voter).kind) : standoff.awaited;
  }
  // Any member may be about to send what a receive from any source waits for. If all the others
  // wait, only the newcomer can.
  if (seen.awaited.empty() && !shares) {
    std::string send = operations.asked_send(membership_.newcomers());
    if (!send.empty() && others_wait()) seen.awaited = std::move(send);
  }
  return seen;
}

// A newcomer to the group, or to its shared state.
bool Group::is_new_to_sync(PeerId peer) const {
  return membership_.is_newcomer(peer) || new_to_sync_.contains(peer);
}

// Nobody is to blame while another member that takes part in the transfers may be stopped or cut
// off.
bool Group::may_be_seen_fetching() const {
  const auto& members = membership_.members();
  return !agreement_.fetching().empty() &&
         std::all_of(members.begin(), members.end(), [this](PeerId member) {
           const bool lively = connections_.received_lately(member, kSilentMax);
           return lively || new_to_sync_.contains(member) || !agreement_.expects(member);
         });
}

// A newcomer that fetches is judged by what arrives, since a slow download is no mistake. Each
// Fetching restarts its time. seen_of() sees the list that a newcomer to the group owes.
void Group::see_fetching(std::vector<Probation::Seen>& all) const {
  for (const PeerId peer : new_to_sync_) {
    const bool owes = agreement_.awaits_list(peer) && membership_.find(peer)->connected;
    if (owes && !membership_.is_newcomer(peer)) all.push_back({peer, kListAwaited, {}, {}});
  }
  if (!may_be_seen_fetching()) return;
  for (const PeerId peer : agreement_.fetching()) {
    if (!new_to_sync_.contains(peer) || !membership_.find(peer)->connected) continue;
    Probation::Seen seen{peer, text(JointKind::kSyncSharedState), {}, {}};
    seen.fetches = true;
    all.push_back(std::move(seen));
  }
}

void Group::give_up_sync() {
  if (agreement_.recording()) return;  // agreed: the answer is on its way
  std::set<PeerId> awaited = agreement_.awaited();
  const bool none = awaited.empty();
  // A lost member is awaited until its epoch ends.
  std::erase_if(awaited, [this](PeerId peer) { return !membership_.is_member(peer); });
  // After their loss, the members vote again, and repeat that they give up.
  if (gave_up_sync_ && none) return;
  const bool lists = agreement_.fetching().empty();
  const std::string what =
      lists ? "did not send the list of entries" : "did not receive the whole state";
  const bool all_new = std::all_of(awaited.begin(), awaited.end(),
                                   [this](PeerId peer) { return is_new_to_sync(peer); });
  if (!none && all_new) {
    gave_up_sync_ = true;
    for (const PeerId peer : awaited)
      remove({peer, "it " + what + " within the timeout of the others", false});
    return;
  }
  if (none) {
    const bool waits = !ballot_.is_complete();
    return answer(Ballot::timeout(waits ? "it waited for " + missing_text(ballot_.missing()) : ""));
  }
  std::vector<uint32_t> ranks;
  ranks.reserve(awaited.size());
  for (const PeerId peer : awaited) ranks.push_back(*membership_.rank(peer));
  std::sort(ranks.begin(), ranks.end());
  answer(Ballot::timeout(membership_.ranks_text(ranks) + " " + what));
}

// A newcomer's timeout does not end the call of others, nor a call that they have yet to make: the
// newcomer is removed, and they continue without it.
bool Group::gives_up_as_newcomer(PeerId peer, JointKind kind) {
  if (!membership_.is_newcomer(peer) &&
      !(kind == JointKind::kSyncSharedState && new_to_sync_.contains(peer)))
    return false;
  remove({peer, std::string("it gave up its first call, ") + text(kind) +
                    ", by its own timeout or because it was interrupted"});
  PCCL_ASSERT(!membership_.is_member(peer));
  return true;
}

// If nobody in this group has taken part in anything, all its members are new to the other groups.
// Members of those groups may wait for them in a joint call of all groups.
std::vector<Probation::Seen> Group::see_newcomers(const std::string& awaited_by_others) const {
  std::vector<Probation::Seen> all;
  for (const PeerId peer : membership_.newcomers()) all.push_back(seen_of(peer));
  // Newcomers that are not held up by others are judged first. Two newcomers may hold up each
  // other.
  const auto to_blame = [](const Probation::Seen& seen) {
    return !seen.awaited.empty() && !seen.held_up;
  };
  if (std::any_of(all.begin(), all.end(), to_blame)) {
    for (Probation::Seen& seen : all) {
      if (seen.held_up) seen.awaited.clear();
    }
  }
  see_fetching(all);
  if (awaited_by_others.empty() || !is_new()) return all;
  const auto& members = membership_.members();
  // The others may wait for a member that is not connected, and perhaps dead.
  const bool one_is_away = std::any_of(members.begin(), members.end(), [this](PeerId peer) {
    return !membership_.find(peer)->connected;
  });
  for (const PeerId peer : members) {
    const bool waits_too = one_is_away || ballot_.has_voted(peer);
    all.push_back({peer, waits_too ? std::string() : awaited_by_others, {}, {}});
  }
  return all;
}

bool Group::watch_newcomers(const std::string& awaited_by_others) {
  const bool any_new = !membership_.newcomers().empty() || !new_to_sync_.empty() ||
                       (!awaited_by_others.empty() && is_new());
  const Epochs::Phase phase = epochs_.phase();
  const bool can_call = phase == Epochs::Phase::kActive || phase == Epochs::Phase::kBroken;
  std::vector<Misfit> wrong = epochs_.take_misfits();
  if (!any_new || !can_call) {
    probation_.restart();
  } else if (probation_.due(context_.now)) {
    const auto overdue = probation_.look(see_newcomers(awaited_by_others),
                                         context_.first_call_timeout, context_.now);
    wrong.insert(wrong.end(), overdue.begin(), overdue.end());
  }
  for (const Misfit& misfit : wrong) {
    if (membership_.is_member(misfit.peer)) remove(misfit);
  }
  return !wrong.empty();
}

// ---- The shared state ----

Status Group::on(PeerId peer, const protocol::StateList& message) {
  if (message.epoch != epochs_.current()) return {};  // its call is cast again, or has ended
  const std::string why = agreement_.on_list(peer, message);
  if (why.empty()) return {};
  if (!membership_.is_newcomer(peer)) return violation("StateList: " + why);
  remove({peer, why});
  return {};
}

Status Group::on(PeerId peer, const protocol::Fetched& message) {
  if (message.code != Code::kOk && is_new_to_sync(peer) && agreement_.expects(peer)) {
    remove({peer, "it could not take the state of the run: " + message.text, false});
    return {};
  }
  if (epochs_.phase() == Epochs::Phase::kActive) finish(agreement_.fetched(peer, message));
  return {};
}

Status Group::on(PeerId peer, const protocol::Fetching& message) {
  if (agreement_.expects(peer) && agreement_.plan()->number == message.number)
    probation_.restart(peer);
  return {};
}

void Group::begin_agreement() {
  PCCL_ASSERT(ballot_.is_complete(JointKind::kSyncSharedState));
  std::vector<OfferOf> offers;
  for (const PeerId member : membership_.members()) {
    const bool trained = trained_here(member) && !new_to_sync_.contains(member);
    offers.push_back(
        {member, &ballot_.vote(member).offer, trained, membership_.find(member)->name});
  }
  const uint32_t number = ballot_.vote(membership_.members()[0]).number;
  if (agreement_.asks_for_lists(offers, number)) {
    if (gave_up_sync_) give_up_sync();
    return;
  }
  agreement_.add_lists_to(offers);
  const std::vector<Misfit> wrong = misfits(offers, agreement_.recorded());
  for (const Misfit& misfit : wrong) remove(misfit);
  if (!wrong.empty()) return;
  if (std::any_of(offers.begin(), offers.end(), [](const auto& one) { return one.trained; })) {
    for (const OfferOf& one : offers) {
      if (!one.trained && new_to_sync_.insert(one.peer).second) probation_.restart(one.peer);
    }
  }
  finish(agreement_.begin(offers, number));
  if (gave_up_sync_ && !agreement_.fetching().empty()) give_up_sync();
}

void Group::finish(const Agreement::Outcome& outcome) {
  if (outcome && ballot_.kind() == JointKind::kSyncSharedState) answer(*outcome);
}

}  // namespace pccl::master
