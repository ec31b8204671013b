// The part of a Group that says for whom its members wait. The sentences are those of last_call.h,
// and wait_report.h decides who is told when.

#include <algorithm>

#include "csrc/base/assert.h"
#include "master/group/group.h"

namespace pccl::master {
namespace {

constexpr const char* kNotCalled =
    "the members have not called update_topology since this peer can be reached";

}  // namespace

std::string Group::missing_text(const std::vector<uint32_t>& ranks) const {
  PCCL_ASSERT(!ranks.empty());
  const size_t named = std::min(ranks.size(), protocol::kRanksNamedMax);
  std::string out;
  for (size_t i = 0; i < named; ++i) {
    out += (i == 0 ? "" : "; for ") + membership_.ranks_text({ranks[i]}) + ", " +
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
bool Group::blocks(uint32_t rank) const {
  const std::optional<PeerId> peer = member_at(rank);
  if (!peer) return false;
  const LastCall& last = membership_.find(*peer)->last_call;
  if (!is_in_last_call(*peer) && !gave_up_lately(last, context_.now)) return false;
  const auto* op = std::get_if<LastCall::Operation>(&last.call);
  if (op == nullptr) return std::holds_alternative<protocol::JointKind>(last.call);
  const auto& members = membership_.members();
  return std::any_of(members.begin(), members.end(), [&](PeerId member) {
    return is_in_joint_call(member) && epochs_.operations().awaits(member, op->key);
  });
}

std::optional<PeerId> Group::member_at(uint32_t rank) const {
  const auto& members = membership_.members();
  const auto at = std::find_if(members.begin(), members.end(),
                               [&](PeerId member) { return membership_.rank(member) == rank; });
  return at == members.end() ? std::nullopt : std::optional(*at);
}

std::string Group::last_call_of(uint32_t rank) const {
  const std::optional<PeerId> peer = member_at(rank);
  if (!peer) return "which is lost";
  const Membership::Peer& about = *membership_.find(*peer);
  const bool receives = about.connected && epochs_.operations().asks_for_sends(*peer);
  if (receives && !is_in_last_call(*peer)) return "which waits for a send from any rank";
  return last_call_text(about.last_call, {about.connected, is_in_last_call(*peer)}, context_.now);
}

Status Group::on(PeerId peer, const protocol::AwaitSend& message) {
  const bool asked = epochs_.operations().asks_for_sends(peer);
  Status status = epochs_.await_send(peer, message);
  const bool asks = epochs_.operations().asks_for_sends(peer);
  if (asks && !asked && !is_in_joint_call(peer))
    membership_.called(peer, {LastCall::AnySend{}, context_.now});
  if (asked && !asks) membership_.stopped_asking(peer, context_.now);
  return status;
}

bool Group::is_in_last_call(PeerId member) const {
  const LastCall& last = membership_.find(member)->last_call;
  if (std::holds_alternative<LastCall::AnySend>(last.call))
    return epochs_.operations().asks_for_sends(member);
  const auto* op = std::get_if<LastCall::Operation>(&last.call);
  return op != nullptr ? epochs_.operations().is_in(member, op->key) : is_in_joint_call(member);
}

bool Group::is_in_joint_call(PeerId member) const {
  return ballot_.size() > 0 && ballot_.has_voted(member);
}

// Why a registered peer is not admitted yet; empty if nothing needs to be said so far.
std::string Group::why_waiting(PeerId peer) const {
  PCCL_ASSERT(!membership_.is_member(peer));
  const std::string obstacle = membership_.obstacle(peer);
  if (!obstacle.empty()) return obstacle;
  const auto& members = membership_.members();
  const bool all_away =
      has_members() && std::none_of(members.begin(), members.end(),
                                    [this](PeerId id) { return membership_.find(id)->connected; });
  if (all_away) return why_members_are_awaited();
  const int waited = membership_.find(peer)->waiting_ticks;
  if (waited < protocol::kTicksPerTimeout) return {};
  // The obstacle will be known as soon as the attempts to connect have failed.
  const bool soon = waited < 2 * protocol::kTicksPerTimeout && membership_.is_being_dialled(peer);
  const bool enough = has_members() || membership_.waiting().size() >= quorum_.founders;
  if (soon && enough) return {};
  if (!has_members()) return why_no_founding();
  const auto pending = membership_.pending(protocol::kMembersMax);
  if (std::find(pending.begin(), pending.end(), peer) == pending.end())
    return "not all members have reached this peer yet";
  return kNotCalled;
}

// The members that have not called update_topology learn once of each newcomer that it waits for
// this call. A program that never makes the call admits no newcomer.
void Group::tell_of_newcomer(PeerId newcomer, const std::string& why) {
  if (why != kNotCalled || !announced_newcomers_.insert(newcomer).second) return;
  const std::string text = membership_.describe(newcomer) +
                           " waits to be admitted: all members have to call "
                           "pccl.update_topology()";
  for (const PeerId member : membership_.members()) {
    if (!is_in_joint_call(member) || !ballot_.is_open(member, protocol::JointKind::kUpdateTopology))
      connections_.send(member, protocol::Notice{text});
  }
}

bool Group::short_of_peers() const { return epochs_.waits_for_peers(); }

// The reason why others cannot join this member; empty if there is none.
std::string Group::why_hindered(PeerId member) const {
  if (short_of_peers()) {
    return "update_topology waits for more peers: " +
           shortage_text(membership_.members().size(), quorum_.min_peers);
  }
  const std::string obstacle = membership_.obstacle(member);
  return obstacle.empty() ? "" : "a newcomer cannot be admitted: " + obstacle;
}

std::string Group::why_members_are_awaited() const {
  const auto& members = membership_.members();
  std::vector<uint32_t> ranks;
  ranks.reserve(members.size());
  for (const PeerId member : members) ranks.push_back(*membership_.rank(member));
  return "the run has " + count_text(members.size(), "member") + ", " +
         membership_.ranks_text(ranks) +
         ", and none of them is connected: the master waits for them to come back, " +
         text(context_.peer_timeout) + " at most";
}

std::string Group::why_no_founding() const {
  const std::string begin =
      " of the " + std::to_string(quorum_.founders) + " peers that begin together";
  const size_t come = membership_.waiting().size();
  const std::string before =
      last_obstacle_.empty() ? ""
                             : ". A peer that has given up could not be reached: " + last_obstacle_;
  if (come < quorum_.founders) {
    const size_t more = quorum_.founders - come;
    const std::string how = come == 1 ? "this peer is alone: 1" + begin + " has come"
                                      : std::to_string(come) + begin + " have come";
    return how + ". Start " + std::to_string(more) + " more with the same master and run" + before;
  }
  const size_t linked = membership_.pending(protocol::kMembersMax).size();
  return count_text(come, "peer") + " have come, and " + std::to_string(linked) + begin +
         " can reach each other so far" + before;
}

std::vector<Wait> Group::operation_waits() const {
  std::vector<Wait> all;
  const Epochs::Phase phase = epochs_.phase();
  if (phase != Epochs::Phase::kActive && phase != Epochs::Phase::kDraining) return all;
  for (const Operations::Waiting& one : epochs_.operations().waits()) {
    Wait wait{one.name,
              one.since,
              {},
              "for " + (one.facing.empty() ? missing_text(one.missing) : one.facing),
              one.key};
    for (const PeerId peer : membership_.members()) {
      const uint32_t rank = *membership_.rank(peer);
      if (std::find(one.waiting.begin(), one.waiting.end(), rank) != one.waiting.end())
        wait.waiting.push_back(peer);
    }
    all.push_back(std::move(wait));
  }
  return all;
}

void Group::report_waits(const std::optional<Wait>& joint_wait) {
  std::vector<Wait> waits = operation_waits();
  if (joint_wait) waits.push_back(*joint_wait);
  announce(wait_report_.look(waits, context_.peer_timeout, context_.now));
}

void Group::flush() {
  forget_left();
  epochs_.flush();
  for (const OpKey op : epochs_.take_ended()) announce(wait_report_.end(op, context_.now));
}

void Group::announce(const std::vector<WaitReport::Announcement>& all) {
  for (const WaitReport::Announcement& one : all) {
    for (const PeerId peer : one.to) {
      if (membership_.is_member(peer)) connections_.send(peer, protocol::Notice{one.text});
    }
    if (!one.is_first) continue;
    const std::string where =
        id_.value == 0 ? "" : "peer group " + std::to_string(id_.value) + ": ";
    context_.log(LogLevel::kWarning, where + one.text);
  }
}

}  // namespace pccl::master
