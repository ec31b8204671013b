#include "master/group/overdue_members.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "master/context.h"
#include "master/epochs/epochs.h"
#include "master/epochs/operation_waits.h"
#include "master/group/ballot.h"
#include "master/members/connections.h"
#include "master/members/membership.h"
#include "master/state/agreement.h"

namespace pccl::master {

using protocol::JointKind;

namespace {

const char* const kListAwaited = "sync_shared_state with the list of its entries";

}  // namespace

// Whether each member that is no newcomer waits in a joint call, a receive or an operation.
bool OverdueMembers::others_wait() const {
  const auto& members = view_.membership.members();
  return std::all_of(members.begin(), members.end(), [this](PeerId member) {
    const bool votes = view_.waits_in_joint_call(member);
    return view_.membership.is_newcomer(member) || votes ||
           view_.present.waits().is_held_up(member);
  });
}

// If all others wait for a call, the newcomer alone delays it, and the call counts as awaited. If
// only some of them wait for it while the newcomer shares a call with another member, the others
// disagree among themselves, and no call counts.
Probation::Seen OverdueMembers::see_newcomer(PeerId peer) const {
  const OperationWaits operations = view_.present.waits();
  const bool votes = view_.waits_in_joint_call(peer);
  size_t others = 0, voted = 0;
  PeerId voter{};
  bool votes_alike = false;  // whether another member has voted for the same kind as the newcomer
  for (const PeerId member : view_.membership.members()) {
    if (view_.membership.is_newcomer(member)) continue;
    ++others;
    if (!view_.ballot.has_voted(member) || view_.agreement.decided()) continue;
    ++voted;
    voter = member;
    votes_alike |= votes && view_.ballot.vote(member).kind == view_.ballot.vote(peer).kind;
  }
  PCCL_ASSERT(others > 0 && view_.membership.is_newcomer(peer));
  Seen seen{peer, {}, {}, {}};
  if (!view_.membership.find(peer)->connected) return seen;
  if (view_.agreement.awaits_list(peer)) {
    seen.awaited = kListAwaited;
    return seen;
  }
  // All have voted, and a member fetches the state. This is the newcomer's first call, so it is not
  // blamed, although other members may already wait for it in the next call. see_fetching() limits
  // its time to fetch. Once the newcomer has the state and has continued, it is judged as always.
  if (votes && view_.agreement.for_voters()) return seen;
  const auto standoff = operations.standoff(peer, view_.membership.newcomers());
  seen.held_up = standoff.held_up;
  seen.instead = votes ? text(view_.ballot.vote(peer).kind) : standoff.alone;
  const bool shares = standoff.shares || votes_alike;
  if (!votes && voted == others) {
    seen.awaited = text(view_.ballot.vote(voter).kind);
    if (!shares) seen.elsewhere = standoff.alone;
  } else if (!standoff.awaited_by_all.empty()) {
    seen.awaited = standoff.awaited_by_all;
    if (!shares && votes) seen.elsewhere = text(view_.ballot.vote(peer).kind);
  } else if (!shares) {
    seen.awaited = voted > 0 ? text(view_.ballot.vote(voter).kind) : standoff.awaited;
  }
  // Any member may soon make the send that a receive from any source waits for. But if all the
  // others wait, only the newcomer can make it.
  if (seen.awaited.empty() && !shares) {
    std::string send = operations.asked_send(view_.membership.newcomers());
    if (!send.empty() && others_wait()) seen.awaited = std::move(send);
  }
  return seen;
}

bool OverdueMembers::is_new_to_sync(PeerId peer) const {
  return view_.membership.is_newcomer(peer) || new_to_sync_.contains(peer);
}

void OverdueMembers::add_new_to_sync(PeerId member) {
  PCCL_ASSERT(view_.membership.is_member(member));
  if (new_to_sync_.insert(member).second) probation_.restart(member);
}

// A newcomer is blamed for a slow fetch only while all other members of the transfers are alive: a
// member that is stopped or cut off could be the reason.
bool OverdueMembers::may_be_seen_fetching() const {
  const auto& members = view_.membership.members();
  return !view_.agreement.fetching().empty() &&
         std::all_of(members.begin(), members.end(), [this](PeerId member) {
           const bool lively = view_.connections.received_lately(member, Connections::kSilentTicks);
           return lively || new_to_sync_.contains(member) || !view_.agreement.expects(member);
         });
}

// Adds the newcomers to the shared state. One that fetches is judged by the data that arrives,
// since a slow download is no mistake: each Fetching message restarts its time. see_newcomer()
// handles the list of entries of a newcomer to the group.
void OverdueMembers::see_fetching(std::vector<Seen>& all) const {
  for (const PeerId peer : new_to_sync_) {
    const bool owes = view_.agreement.awaits_list(peer) && view_.membership.find(peer)->connected;
    if (owes && !view_.membership.is_newcomer(peer)) all.push_back({peer, kListAwaited, {}, {}});
  }
  if (!may_be_seen_fetching()) return;
  for (const PeerId peer : view_.agreement.fetching()) {
    if (!new_to_sync_.contains(peer) || !view_.membership.find(peer)->connected) continue;
    Seen seen{peer, text(JointKind::kSyncSharedState), {}, {}};
    seen.fetches = true;
    all.push_back(std::move(seen));
  }
}

// If no member of this group has taken part in anything, all members are newcomers for the other
// groups. Members of those groups may wait for this group in a joint call of all groups.
std::vector<Probation::Seen> OverdueMembers::see_newcomers(
    const std::string& awaited_by_others) const {
  std::vector<Seen> all;
  for (const PeerId peer : view_.membership.newcomers()) all.push_back(see_newcomer(peer));
  // Two newcomers may hold up each other. So while a newcomer is overdue that nobody holds up, the
  // newcomers that are held up are not judged.
  const auto to_blame = [](const Seen& seen) { return !seen.awaited.empty() && !seen.held_up; };
  if (std::any_of(all.begin(), all.end(), to_blame)) {
    for (Seen& seen : all) {
      if (seen.held_up) seen.awaited.clear();
    }
  }
  see_fetching(all);
  if (awaited_by_others.empty() || !view_.is_new()) return all;
  const auto& members = view_.membership.members();
  // If a member is not connected, and perhaps dead, the other members are not blamed: they may wait
  // for it.
  const bool one_is_away = std::any_of(members.begin(), members.end(), [this](PeerId peer) {
    return !view_.membership.find(peer)->connected;
  });
  for (const PeerId peer : members) {
    const bool waits_too = one_is_away || view_.ballot.has_voted(peer);
    all.push_back({peer, waits_too ? std::string() : awaited_by_others, {}, {}});
  }
  return all;
}

std::vector<Misfit> OverdueMembers::overdue_newcomers(const std::string& awaited_by_others) {
  const bool any_new = !view_.membership.newcomers().empty() || !new_to_sync_.empty() ||
                       (!awaited_by_others.empty() && view_.is_new());
  if (!any_new || !view_.can_call()) {
    probation_.restart();
    return {};
  }
  const Instant now = view_.context.now;
  if (!probation_.due(now)) return {};
  return probation_.look(see_newcomers(awaited_by_others),
                         view_.context.settings.first_call_timeout, now);
}

// `members`: all but newcomers. Returns nothing unless most of them wait for this member.
std::optional<Probation::Seen> OverdueMembers::see_late(PeerId peer,
                                                        const std::vector<PeerId>& members) const {
  if (!view_.membership.find(peer)->connected) return std::nullopt;
  OperationWaits::Awaited awaited;
  if (view_.epochs.phase() == Epochs::Phase::kActive)
    awaited = view_.present.waits().awaited(peer, view_.membership.newcomers());
  for (const PeerId member : members) {
    if (!view_.ballot.has_voted(member) || view_.agreement.decided()) continue;
    awaited.by.insert(member);
    awaited.call = text(view_.ballot.vote(member).kind);
  }
  const size_t waiting = awaited.by.size();
  const bool all_others = waiting + 1 == members.size();
  if (waiting == 0 || (!all_others && 2 * waiting <= members.size())) return std::nullopt;
  Seen seen{peer, std::move(awaited.call), {}, {}};
  seen.silent = !view_.connections.received_lately(peer);
  return seen;
}

// A member that is in a call may wait for others in turn, so it is not late.
std::vector<Probation::Seen> OverdueMembers::see_late_members() const {
  std::vector<PeerId> members, idle;
  for (const PeerId member : view_.membership.members()) {
    if (view_.membership.is_newcomer(member)) continue;
    members.push_back(member);
    if (!view_.is_in_call(member)) idle.push_back(member);
  }
  std::vector<Seen> late;
  if (idle.size() > 1 && 2 * idle.size() >= members.size()) return late;  // too few wait
  for (const PeerId member : idle) {
    if (auto seen = see_late(member, members)) late.push_back(std::move(*seen));
  }
  // If the others would be too few to continue without the late members, no member is removed.
  if (view_.membership.members().size() - late.size() < view_.quorum.min_peers) late.clear();
  PCCL_ASSERT(late.empty() || late.size() < members.size());
  return late;
}

std::vector<Misfit> OverdueMembers::late_members() {
  const Duration limit = view_.context.settings.call_timeout;
  if (limit == Duration{0}) return {};
  if (!view_.can_call()) {
    lateness_.restart();
    return {};
  }
  const Instant now = view_.context.now;
  if (!lateness_.due(now)) return {};
  return lateness_.look(see_late_members(), limit, now);
}

std::vector<Misfit> OverdueMembers::unanswering_members() {
  std::vector<Seen> owing;
  if (!view_.epochs.asks()) {  // the usual case, in each step
    if (answers_.deadline()) answers_.restart();
    return {};
  }
  for (const PeerId member : view_.membership.members()) {
    std::string asked = view_.epochs.asked(member);
    if (asked.empty() || !view_.membership.find(member)->connected) continue;
    Seen seen{member, std::move(asked), {}, {}};
    seen.silent = !view_.connections.received_lately(member);
    seen.asked = true;
    owing.push_back(std::move(seen));
  }
  const Instant now = view_.context.now;
  if (!answers_.due(now)) return {};
  return answers_.look(owing, 2 * view_.context.settings.peer_timeout, now);
}

std::optional<Instant> OverdueMembers::deadline() const {
  std::optional<Instant> first;
  for (const Probation* const one : {&probation_, &lateness_, &answers_}) {
    const auto next = one->deadline();
    if (next && (!first || *next < *first)) first = next;
  }
  return first;
}

void OverdueMembers::excuse_all() {
  probation_.restart();
  lateness_.restart();
  answers_.restart();
}

void OverdueMembers::check() const {
  probation_.check();
  lateness_.check();
  answers_.check();
  for (const PeerId peer : new_to_sync_) PCCL_ASSERT(view_.membership.is_member(peer));
}

}  // namespace pccl::master
