#include "master/group/wait_texts.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "master/context.h"
#include "master/epochs/epochs.h"
#include "master/epochs/operation_waits.h"
#include "master/group/groups.h"
#include "master/members/membership.h"
#include "master/text_format.h"

namespace pccl::master {

std::string WaitTexts::missing(const std::vector<uint32_t>& ranks) const {
  PCCL_ASSERT(!ranks.empty());
  const size_t named = std::min(ranks.size(), protocol::kRanksNamedMax);
  std::string out;
  for (size_t i = 0; i < named; ++i) {
    out += (i == 0 ? "" : "; for ") + view_.membership.ranks_text({ranks[i]}) + ", " +
           last_call_of(ranks[i]);
    const std::optional<PeerId> member = member_at(ranks[i]);
    if (member && view_.blocks_others(*member)) {
      const bool waits = view_.is_in_last_call(*member);
      out += waits ? " and waits in turn" : "";
      out += " (all ranks must make the same calls, in the same order)";
    }
  }
  if (named < ranks.size()) out += "; and for " + count_text(ranks.size() - named, "other rank");
  return out;
}

std::optional<PeerId> WaitTexts::member_at(uint32_t rank) const {
  const auto& members = view_.membership.members();
  const auto at = std::find_if(members.begin(), members.end(), [&](PeerId member) {
    return view_.membership.rank(member) == rank;
  });
  return at == members.end() ? std::nullopt : std::optional(*at);
}

std::string WaitTexts::last_call_of(uint32_t rank) const {
  const std::optional<PeerId> peer = member_at(rank);
  return peer ? "which " + activity(*peer) : "which is lost";
}

std::string WaitTexts::activity(PeerId member) const {
  const Membership::Peer& about = *view_.membership.find(member);
  const bool receives = about.connected && view_.present.waits().asks_for_sends(member);
  if (receives && !view_.is_in_last_call(member)) return "waits for a send from any rank";
  return last_call_text(about.last_call, {about.connected, view_.is_in_last_call(member)},
                        view_.context.now);
}

std::string NotAdmitted::text() const {
  std::string out = reason;
  for (const std::string& sentence : {advice, more}) {
    if (!sentence.empty()) out += ". " + sentence;
  }
  return out;
}

NotAdmitted WaitTexts::why_waiting(PeerId peer, Delay delay, const std::string& last_obstacle,
                                   Membership::Reader reader) const {
  switch (delay) {
    case Delay::kNone: break;
    case Delay::kObstacle:
      return {view_.membership.obstacle(peer, reader), Membership::kWhatToOpen, {}};
    case Delay::kMembersAway: return {why_members_are_awaited(), {}, {}};
    case Delay::kTooFewPeers:
    case Delay::kUnlinkedPeers: return why_no_founding(last_obstacle);
    case Delay::kUnlinkedMembers: return {"not all members have reached this peer yet", {}, {}};
    case Delay::kNoUpdate:
      return {"the members have not called update_topology since this peer can be reached", {}, {}};
  }
  return {};
}

std::string WaitTexts::not_admitted(PeerId peer, const std::string& why) const {
  return view_.membership.describe(peer) + " is not admitted yet: " + why;
}

std::string WaitTexts::why_hindered(PeerId member) const {
  if (view_.epochs.waits_for_peers()) {
    return "update_topology waits for more peers: " +
           shortage_text(view_.membership.members().size(), view_.quorum.min_peers);
  }
  const std::string obstacle = view_.membership.obstacle(member, Membership::Reader::kMember);
  if (obstacle.empty()) return {};
  return "a newcomer cannot be admitted: " + obstacle + ". " + Membership::kWhatToOpen;
}

std::string WaitTexts::why_members_are_awaited() const {
  const auto& members = view_.membership.members();
  std::vector<uint32_t> ranks;
  ranks.reserve(members.size());
  for (const PeerId member : members) ranks.push_back(*view_.membership.rank(member));
  return "the run has " + count_text(members.size(), "member") + ", " +
         view_.membership.ranks_text(ranks) +
         ", and none of them is connected: the master waits for them to come back, " +
         text(view_.context.settings.peer_timeout) + " at most";
}

std::string WaitTexts::start_more(size_t count) {
  return "Start " + std::to_string(count) + " more with the same master and run";
}

NotAdmitted WaitTexts::why_no_founding(const std::string& last_obstacle) const {
  const std::string begin =
      " of the " + std::to_string(view_.quorum.founders) + " peers that begin together";
  const size_t come = view_.membership.waiting().size();
  NotAdmitted why;
  if (!last_obstacle.empty())
    why.more = "A peer that has given up could not be reached: " + last_obstacle;
  if (come < view_.quorum.founders) {
    why.reason = come == 1 ? "this peer is alone: 1" + begin + " has come"
                           : std::to_string(come) + begin + " have come";
    why.advice = start_more(view_.quorum.founders - come);
    return why;
  }
  const size_t linked = view_.membership.pending(protocol::kMembersMax).size();
  why.reason = count_text(come, "peer") + " have come, and " + std::to_string(linked) + begin +
               " can reach each other so far";
  return why;
}

std::string absent_text(const Groups& groups, const Group& own, const std::vector<Absent>& absent) {
  std::string out;
  for (const auto& [id, ranks] : absent) {
    if (!out.empty()) out += "; for ";
    if (id != own.id()) out += "peer group " + std::to_string(id.value) + ": ";
    out += ranks.empty() ? "the loss of a member to be recorded"
                         : WaitTexts(groups.find(id)->view()).missing(ranks);
  }
  return out;
}

Wait described(const Groups& groups, const Group& group, AwaitedCall call) {
  const GroupView& view = group.view();
  const auto* const op = std::get_if<OpKey>(&call.call);
  Wait wait{op != nullptr ? view.present.waits().name(*op)
                          : text(std::get<protocol::JointKind>(call.call)),
            call.since, std::move(call.waiting), "for ", call.call};
  if (call.is_facing) {
    wait.why += view.present.waits().facing_text(*op);
  } else if (!call.absent.empty()) {
    wait.why += absent_text(groups, group, call.absent);
  } else if (view.epochs.changing()) {
    wait.why += "calls to end: " + view.epochs.waits_for();
  } else {
    wait.why = group.plan_call().waits_for();
  }
  return wait;
}

std::vector<Wait> described_waits(const Groups& groups, const Group& group) {
  std::vector<Wait> all;
  for (AwaitedCall& one : awaited_calls(groups, group))
    all.push_back(described(groups, group, std::move(one)));
  return all;
}

}  // namespace pccl::master
