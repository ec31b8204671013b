// The part of a Group that judges members which are late: they make no call, and the others wait
// for it (PROTOCOL.md, section 2). A newcomer is judged in group_newcomers.cc.

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/base/assert.h"
#include "master/group/group.h"
#include "master/text_format.h"

namespace pccl::master {

// Whether its application has gone on after its vote, while others fetch the state.
bool Group::goes_on(PeerId peer) const {
  return agreement_.decided() && ballot_.has_voted(peer) && ballot_.vote(peer).background &&
         !agreement_.fetching().contains(peer);
}

// Whether it is in a call whose outcome it does not know. In a broken group nothing is repeated but
// what is kept, and that is soon begun again.
bool Group::is_in_call(PeerId peer) const {
  const Operations& operations = epochs_.operations();
  if (ballot_.has_voted(peer) && !goes_on(peer)) return true;
  if (epochs_.phase() != Epochs::Phase::kActive) return false;
  return operations.is_in_any(peer) || (!epochs_.broken() && operations.is_to_repeat(peer));
}

// `members`: without newcomers. Nothing if most of the others do not wait for this member.
std::optional<Probation::Seen> Group::see_late(PeerId peer,
                                               const std::vector<PeerId>& members) const {
  if (!membership_.find(peer)->connected) return std::nullopt;
  Operations::Awaited awaited;
  if (epochs_.phase() == Epochs::Phase::kActive)
    awaited = epochs_.operations().awaited(peer, membership_.newcomers());
  for (const PeerId member : members) {
    if (!ballot_.has_voted(member) || agreement_.decided()) continue;
    awaited.by.insert(member);
    awaited.call = text(ballot_.vote(member).kind);
  }
  const size_t waiting = awaited.by.size();
  const bool all_others = waiting + 1 == members.size();
  if (waiting == 0 || (!all_others && 2 * waiting <= members.size())) return std::nullopt;
  Probation::Seen seen{peer, std::move(awaited.call), {}, {}};
  seen.silent = !connections_.received_lately(peer);
  return seen;
}

// A member that is in a call may wait for others in turn, so it is not late.
std::vector<Probation::Seen> Group::see_late_members() const {
  std::vector<PeerId> members, idle;
  for (const PeerId member : membership_.members()) {
    if (membership_.is_newcomer(member)) continue;
    members.push_back(member);
    if (!is_in_call(member)) idle.push_back(member);
  }
  std::vector<Probation::Seen> late;
  if (idle.size() > 1 && 2 * idle.size() >= members.size()) return late;  // too few wait
  for (const PeerId member : idle) {
    if (auto seen = see_late(member, members)) late.push_back(std::move(*seen));
  }
  // With fewer members, the others could not go on either.
  if (membership_.members().size() - late.size() < quorum_.min_peers) late.clear();
  PCCL_ASSERT(late.empty() || late.size() < members.size());
  return late;
}

bool Group::watch_late_members() {
  const Epochs::Phase phase = epochs_.phase();
  const bool can_call = phase == Epochs::Phase::kActive || phase == Epochs::Phase::kBroken;
  if (context_.call_timeout == Duration{0}) return false;
  if (!can_call) {
    lateness_.restart();
    return false;
  }
  if (!lateness_.due(context_.now)) return false;
  const auto late = lateness_.look(see_late_members(), context_.call_timeout, context_.now);
  for (const Misfit& misfit : late) {
    lose(misfit.peer, "it was late, and the others go on without it: " + misfit.why +
                          ". If a step may take longer, give all peers a longer one");
  }
  return !late.empty();
}

std::optional<Instant> Group::deadline() const {
  const auto first = probation_.deadline(), other = lateness_.deadline();
  const auto all = {first, other, optimization_.deadline()};
  std::optional<Instant> earliest;
  for (const auto& one : all) {
    if (one && (!earliest || *one < *earliest)) earliest = one;
  }
  return earliest;
}

void Group::excuse_members() {
  probation_.restart();
  lateness_.restart();
}

}  // namespace pccl::master
