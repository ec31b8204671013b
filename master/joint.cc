#include "master/joint.h"

#include <algorithm>
#include <optional>
#include <string>

#include "csrc/base/assert.h"
#include "master/words.h"

namespace pccl::master {
namespace {

using protocol::Answer;
using protocol::JointKind;
using protocol::Settled;
using Phase = Epochs::Phase;

// The ballots of this kind that are about to be settled together; nothing if there is only one.
std::vector<Settled> ballots(const Groups& groups, JointKind kind) {
  std::vector<Settled> all;
  for (const auto& [id, group] : groups) {
    if (!group.has_members() || !group.has_voted(kind)) continue;
    if (!group.epochs().changing()) all.push_back(group.settled_ballot());
  }
  if (all.size() == 1) all.clear();
  all.resize(std::min(all.size(), protocol::kGroupsNamedMax));
  return all;
}

// Before the master was started again its ballot was settled with that of another group, which has
// heard of it: it waits for nobody. See Group::told_of().
std::optional<bool> settled_before(const Groups& groups, const Group& group) {
  for (const auto& [id, other] : groups) {
    if (const auto told = other.told_of(group)) return told;
  }
  return std::nullopt;
}

// All groups have voted for it, or have agreed before and are on their way.
bool update_is_complete(const Groups& groups) {
  return std::all_of(groups.begin(), groups.end(), [](const auto& at) {
    return !at.second.has_members() || at.second.has_voted(JointKind::kUpdateTopology);
  });
}

void settle_update(Groups& groups) {
  const bool complete = update_is_complete(groups);
  Answer unchanged;
  if (complete) unchanged.together = ballots(groups, JointKind::kUpdateTopology);
  for (auto& [id, group] : groups) {
    if (!group.has_members() || group.epochs().changing()) continue;
    if (!group.has_voted(JointKind::kUpdateTopology)) continue;
    if (!complete && !settled_before(groups, group)) continue;
    group.would_change() ? group.change(unchanged.together) : group.answer(unchanged);
  }
}

// Whether this group has said all that it will before its topology is updated.
bool has_nothing_to_say(const Group& group) {
  const bool waits_for_update =
      group.has_voted(JointKind::kUpdateTopology) && !group.epochs().changing();
  return !group.has_members() || group.epochs().disturbed() || waits_for_update;
}

void settle_pending(Groups& groups) {
  bool asked = false, complete = true, would_change = false;
  for (auto& [id, group] : groups) {
    const bool voted = group.has_voted(JointKind::kArePeersPending);
    const std::optional<bool> before =
        voted ? settled_before(groups, group) : std::optional<bool>();
    if (before) {
      Answer same;
      same.pending = *before;
      group.answer(same);
      complete = false;  // of the ballot that is open now
      continue;
    }
    asked |= voted;
    complete &= voted || has_nothing_to_say(group);
  }
  if (!asked || !complete) return;
  for (const auto& [id, group] : groups) {
    const bool waits = group.has_voted(JointKind::kUpdateTopology);
    would_change |= group.has_members() && (waits || group.would_change());
  }
  Answer answer;
  answer.pending = would_change;
  answer.together = ballots(groups, JointKind::kArePeersPending);
  for (auto& [id, group] : groups) {
    if (group.has_voted(JointKind::kArePeersPending)) group.answer(answer);
  }
}

// "rank 2 has not called it", for each group that is waited for.
std::string who_is_missing(const Groups& groups, JointKind kind) {
  std::string out;
  for (const auto& [id, group] : groups) {
    if (!group.has_members() || group.has_voted(kind)) continue;
    std::vector<uint32_t> missing;
    if (group.ballot().kind() == kind) {
      missing = group.ballot().missing();
    } else {
      for (const PeerId member : group.membership().members()) {
        missing.push_back(*group.membership().rank(member));
      }
    }
    if (!out.empty()) out += "; ";
    if (groups.size() > 1) out += "of peer group " + std::to_string(id.value) + ", ";
    out += missing.empty()
               ? "a member was just lost"
               : ranks_text(missing) + (missing.size() == 1 ? " has" : " have") + " not called it";
  }
  return out;
}

Answer timeout(std::string text) {
  Answer answer;
  answer.code = Code::kOperationTimeout;
  answer.text = "timed out: " + (text.empty() ? "its answer was about to come" : std::move(text));
  return answer;
}

// The ballot of one group that has agreed on a change.
void give_up_change(Group& group) {
  const Phase phase = group.epochs().phase();
  PCCL_ASSERT(phase != Phase::kStarting);  // it was held
  if (phase != Phase::kBroken) return group.answer(timeout(group.epochs().waits_for()));
  Answer answer;
  answer.code = Code::kTooFewPeers;
  answer.text = "peer group " + std::to_string(group.id().value) + " has " +
                counted(group.membership().members().size(), "member") +
                " left and nobody who could be admitted, min_peers is " +
                std::to_string(group.quorum().min_peers) + ": start more peers and call it again";
  group.answer(answer);
}

void give_up_sync(Group& group) {
  if (group.agreement().recording()) return;  // it is agreed on; the answer is about to come
  const auto& fetching = group.agreement().fetching();
  if (fetching.empty()) {
    std::string missing;
    if (!group.ballot().is_complete()) {
      missing = ranks_text(group.ballot().missing()) + " did not call it";
    }
    return group.answer(timeout(std::move(missing)));
  }
  std::vector<uint32_t> ranks;
  for (const PeerId peer : fetching) {
    if (const auto rank = group.membership().rank(peer)) ranks.push_back(*rank);
  }
  std::sort(ranks.begin(), ranks.end());
  std::string who = ranks.empty() ? "a peer that was lost" : ranks_text(ranks);
  group.answer(timeout(who + " did not receive the whole state"));
}

}  // namespace

void settle_joint_calls(Groups& groups) {
  settle_update(groups);
  settle_pending(groups);
}

std::string awaited_by_others(const Groups& groups, GroupId of) {
  if (groups.size() == 1) return {};
  for (const auto& [id, group] : groups) {
    if (id == of || !group.has_members() || group.is_new()) continue;
    const auto kind = group.ballot().kind();
    if (!kind || *kind == JointKind::kSyncSharedState || group.epochs().changing()) continue;
    return std::string(text(*kind)) + ", for which peer group " + std::to_string(id.value) +
           " waits,";
  }
  return {};
}

void give_up_joint_call(Groups& groups, Group& group, PeerId peer, uint32_t number) {
  if (!group.ballot().is_open(peer, number)) return;  // answered
  const JointKind kind = group.ballot().vote(peer).kind;
  if (group.gives_up_as_newcomer(peer, kind)) return;
  if (kind == JointKind::kSyncSharedState) return give_up_sync(group);
  if (group.epochs().changing()) return give_up_change(group);
  const Answer answer = timeout(who_is_missing(groups, kind));
  for (auto& [id, other] : groups) {
    if (other.ballot().kind() == kind && !other.epochs().changing()) other.answer(answer);
  }
}

}  // namespace pccl::master
