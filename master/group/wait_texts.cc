#include "master/group/wait_texts.h"

#include <algorithm>

#include "csrc/base/assert.h"
#include "master/context.h"
#include "master/epochs/epochs.h"
#include "master/epochs/operation_waits.h"
#include "master/group/ballot.h"
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
    if (blocks(ranks[i])) {
      const bool waits = is_in_last_call(*member_at(ranks[i]));
      out += waits ? " and waits in turn" : "";
      out += " (all ranks must make the same calls, in the same order)";
    }
  }
  if (named < ranks.size()) out += "; and for " + count_text(ranks.size() - named, "other rank");
  return out;
}

// Whether this rank is in a call, or was in it until it gave up, that cannot end before those who
// wait for the rank make the same call: it is in a joint call, or they are in one and have not
// begun its operation.
bool WaitTexts::blocks(uint32_t rank) const {
  const std::optional<PeerId> peer = member_at(rank);
  if (!peer) return false;
  const LastCall& last = view_.membership.find(*peer)->last_call;
  if (!is_in_last_call(*peer) && !gave_up_lately(last, view_.context.now)) return false;
  const auto* op = std::get_if<LastCall::Operation>(&last.call);
  if (op == nullptr) return std::holds_alternative<protocol::JointKind>(last.call);
  const auto& members = view_.membership.members();
  return std::any_of(members.begin(), members.end(), [&](PeerId member) {
    return view_.is_in_joint_call(member) && view_.present.waits().awaits(member, op->key);
  });
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
  if (!peer) return "which is lost";
  const Membership::Peer& about = *view_.membership.find(*peer);
  const bool receives = about.connected && view_.present.waits().asks_for_sends(*peer);
  if (receives && !is_in_last_call(*peer)) return "which waits for a send from any rank";
  return last_call_text(about.last_call, {about.connected, is_in_last_call(*peer)},
                        view_.context.now);
}

bool WaitTexts::is_in_last_call(PeerId member) const {
  const LastCall& last = view_.membership.find(member)->last_call;
  if (std::holds_alternative<LastCall::AnySend>(last.call))
    return view_.present.waits().asks_for_sends(member);
  const auto* op = std::get_if<LastCall::Operation>(&last.call);
  return op != nullptr ? view_.present.waits().is_in(member, op->key)
                       : view_.is_in_joint_call(member);
}

std::string WaitTexts::why_waiting(PeerId peer, const std::string& last_obstacle) const {
  PCCL_ASSERT(!view_.membership.is_member(peer));
  const std::string obstacle = view_.membership.obstacle(peer);
  if (!obstacle.empty()) return obstacle;
  const auto& members = view_.membership.members();
  const bool all_away =
      view_.has_members() && std::none_of(members.begin(), members.end(), [this](PeerId id) {
        return view_.membership.find(id)->connected;
      });
  if (all_away) return why_members_are_awaited();
  const int waited = view_.membership.find(peer)->waiting_ticks;
  if (waited < protocol::kTicksPerTimeout) return {};
  // The obstacle will be known as soon as the attempts to connect have failed.
  const bool soon =
      waited < 2 * protocol::kTicksPerTimeout && view_.membership.is_being_dialled(peer);
  const bool enough =
      view_.has_members() || view_.membership.waiting().size() >= view_.quorum.founders;
  if (soon && enough) return {};
  if (!view_.has_members()) return why_no_founding(last_obstacle);
  const auto pending = view_.membership.pending(protocol::kMembersMax);
  if (std::find(pending.begin(), pending.end(), peer) == pending.end())
    return "not all members have reached this peer yet";
  return kNotCalled;
}

std::string WaitTexts::why_hindered(PeerId member) const {
  if (view_.epochs.waits_for_peers()) {
    return "update_topology waits for more peers: " +
           shortage_text(view_.membership.members().size(), view_.quorum.min_peers);
  }
  const std::string obstacle = view_.membership.obstacle(member);
  return obstacle.empty() ? "" : "a newcomer cannot be admitted: " + obstacle;
}

std::string WaitTexts::why_members_are_awaited() const {
  const auto& members = view_.membership.members();
  std::vector<uint32_t> ranks;
  ranks.reserve(members.size());
  for (const PeerId member : members) ranks.push_back(*view_.membership.rank(member));
  return "the run has " + count_text(members.size(), "member") + ", " +
         view_.membership.ranks_text(ranks) +
         ", and none of them is connected: the master waits for them to come back, " +
         text(view_.context.peer_timeout) + " at most";
}

std::string WaitTexts::why_no_founding(const std::string& last_obstacle) const {
  const std::string begin =
      " of the " + std::to_string(view_.quorum.founders) + " peers that begin together";
  const size_t come = view_.membership.waiting().size();
  const std::string before =
      last_obstacle.empty() ? ""
                            : ". A peer that has given up could not be reached: " + last_obstacle;
  if (come < view_.quorum.founders) {
    const size_t more = view_.quorum.founders - come;
    const std::string how = come == 1 ? "this peer is alone: 1" + begin + " has come"
                                      : std::to_string(come) + begin + " have come";
    return how + ". Start " + std::to_string(more) + " more with the same master and run" + before;
  }
  const size_t linked = view_.membership.pending(protocol::kMembersMax).size();
  return count_text(come, "peer") + " have come, and " + std::to_string(linked) + begin +
         " can reach each other so far" + before;
}

std::vector<Wait> WaitTexts::operation_waits() const {
  std::vector<Wait> all;
  const Epochs::Phase phase = view_.epochs.phase();
  if (phase != Epochs::Phase::kActive && phase != Epochs::Phase::kDraining) return all;
  for (const OperationWaits::Waiting& one : view_.present.waits().all()) {
    Wait wait{one.name,
              one.since,
              {},
              "for " + (one.facing.empty() ? missing(one.missing) : one.facing),
              one.key};
    for (const PeerId peer : view_.membership.members()) {
      const uint32_t rank = *view_.membership.rank(peer);
      if (std::find(one.waiting.begin(), one.waiting.end(), rank) != one.waiting.end())
        wait.waiting.push_back(peer);
    }
    all.push_back(std::move(wait));
  }
  return all;
}

}  // namespace pccl::master
