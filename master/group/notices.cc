#include "master/group/notices.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "master/context.h"
#include "master/epochs/epochs.h"
#include "master/group/ballot.h"
#include "master/group/cycle_text.h"
#include "master/group/wait_texts.h"
#include "master/members/connections.h"
#include "master/members/membership.h"

namespace pccl::master {

void Notices::update() {
  if (!std::exchange(due_, false)) return;
  const std::vector<PeerId> waiting = view_.membership.waiting();
  const WaitTexts texts(view_);
  for (const PeerId peer : waiting) {
    const Delay delay = view_.delay_of(peer);
    const auto why = [&](const std::string& last_obstacle, Membership::Reader reader) {
      return texts.why_waiting(peer, delay, last_obstacle, reader).text();
    };
    const std::string shown = why(last_obstacle_, Membership::Reader::kStranger);
    if (!send(peer, shown)) continue;
    membership_.set_held_up(peer, true);
    if (delay == Delay::kNoUpdate) tell_of_newcomer(peer);
    const std::string known = why(known_last_obstacle_, Membership::Reader::kMember);
    context_.log_withheld(LogLevel::kWarning,
                          {LogEvent::kNotAdmitted, view_.id, view_.membership.name(peer)},
                          texts.not_admitted(peer, known), texts.not_admitted(peer, shown));
  }
  const bool was_short = std::exchange(short_of_peers_, view_.epochs.waits_for_peers());
  // Usually no peer waits. A look at each pair of peers would cost more than the rest of a tick.
  const auto& members = view_.membership.members();
  if (short_of_peers_ || !waiting.empty() || !hindered_.empty()) {
    for (const PeerId member : members) update_member(member);
  }
  if (short_of_peers_ && !was_short)
    context_.log(LogLevel::kWarning, {LogEvent::kBelowMinPeers, view_.id},
                 texts.why_hindered(members[0]));
}

void Notices::update_member(PeerId member) {
  std::string why = WaitTexts(view_).why_hindered(member);
  if (!short_of_peers_ && !why.empty()) {
    hindered_.insert(member);
  } else if (!short_of_peers_ && hindered_.erase(member) > 0) {
    why = "the newcomer that could not be admitted can be reached now, or is gone";
  }
  send(member, std::move(why));
}

// Returns false if there is no reason, or if the peer has got the same text last time.
bool Notices::send(PeerId peer, std::string why) {
  PCCL_ASSERT(view_.membership.find(peer) != nullptr);
  if (why.empty() || last_[peer] == why) return false;
  connections_.send(peer, protocol::Notice{why});
  last_[peer] = std::move(why);
  return true;
}

// The members that have not called update_topology learn once of each newcomer that it waits for
// this call. A program that never makes the call admits no newcomer.
void Notices::tell_of_newcomer(PeerId newcomer) {
  if (!announced_.insert(newcomer).second) return;
  const std::string text =
      view_.membership.describe(newcomer) + " waits to be admitted: " + WaitTexts::kCallUpdate;
  for (const PeerId member : view_.membership.members()) {
    const bool calls = view_.is_in_joint_call(member) &&
                       view_.ballot.is_open(member, protocol::JointKind::kUpdateTopology);
    if (!calls) connections_.send(member, protocol::Notice{text});
  }
}

void Notices::refused(const std::string& why) {
  for (const PeerId member : view_.membership.members()) send(member, why);
  hindered_.clear();
}

void Notices::gives_up(PeerId newcomer) {
  PCCL_ASSERT(!view_.membership.is_member(newcomer));
  const auto obstacle = [&](Membership::Reader reader) {
    const std::string text = view_.membership.obstacle(newcomer, reader);
    return text.empty() ? text : text + ". " + Membership::kWhatToOpen;
  };
  const std::string shown = obstacle(Membership::Reader::kStranger);
  if (shown.empty()) return;
  last_obstacle_ = shown;
  known_last_obstacle_ = obstacle(Membership::Reader::kMember);
}

void Notices::forget(PeerId peer) {
  last_.erase(peer);
  announced_.erase(peer);
  hindered_.erase(peer);
}

void Notices::updated(PeerId member) {
  if (short_of_peers_) send(member, "update_topology goes on: enough peers are there");
}

void Notices::begun() {
  last_obstacle_.clear();
  known_last_obstacle_.clear();
  short_of_peers_ = false;
  for (const PeerId member : view_.membership.members()) {
    last_.erase(member);
    announced_.erase(member);
    if (!view_.membership.find(member)->held_up) continue;
    membership_.set_held_up(member, false);
    context_.log(LogLevel::kWarning, {LogEvent::kAdmitted, view_.id, view_.membership.name(member)},
                 view_.membership.describe(member) + " is admitted");
  }
}

void Notices::report(const std::vector<Wait>& waits) {
  announce(report_.look(waits, context_.settings.peer_timeout, context_.now));
}

void Notices::ended(const Wait::Call& call) { announce(report_.end(call, context_.now)); }

void Notices::announce(const std::vector<WaitReport::Announcement>& all) {
  for (const WaitReport::Announcement& one : all) {
    for (const PeerId peer : one.to) {
      if (view_.membership.is_member(peer)) connections_.send(peer, protocol::Notice{one.text});
    }
    if (!one.is_first) continue;
    const uint32_t group = view_.id.value;
    const std::string where = group == 0 ? "" : "peer group " + std::to_string(group) + ": ";
    const LogEvent event = one.is_end ? LogEvent::kWaitEnds : LogEvent::kWaitBegins;
    context_.log(LogLevel::kWarning, {event, view_.id}, where + one.text);
  }
}

// The two calls may still be meant for each other, and their shapes are equal: no error.
void Notices::called(PeerId member, OpKey op, const protocol::OpInfo& info) {
  if (info.site.empty() || site_pairs_.size() >= kSitePairsMax) return;
  const auto other = view_.present.operations().other_site(member, op, info);
  if (!other || !site_pairs_.insert(std::minmax(other->site, info.site)).second) return;
  const std::string text =
      other->text +
      ". The shapes are equal, so the call goes on. If the ranks make these calls in different "
      "orders, give each line a tag of its own (pccl.tag)";
  context_.log(LogLevel::kWarning, {LogEvent::kCallSitesDiffer, view_.id}, text);
  for (const PeerId peer : {other->first, member}) {
    if (view_.membership.is_member(peer)) connections_.send(peer, protocol::Notice{text});
  }
}

void Notices::check() const {
  for (const auto& [peer, notice] : last_) PCCL_ASSERT(view_.membership.find(peer) != nullptr);
  for (const PeerId peer : announced_) PCCL_ASSERT(view_.membership.find(peer) != nullptr);
  for (const PeerId peer : hindered_) PCCL_ASSERT(view_.membership.is_member(peer));
}

void Notices::warn_of(const CycleWatch::Cycle& cycle) {
  const std::string text = cycle_text(view_, cycle.links) + "; " + kCycleAdvice;
  context_.log(LogLevel::kWarning, {LogEvent::kWaitCycle, view_.id}, text);
  for (const PeerId member : membership_.members()) {
    const uint32_t rank = *membership_.rank(member);
    const bool is_in = std::any_of(cycle.links.begin(), cycle.links.end(),
                                   [rank](const WaitLink& link) { return link.rank == rank; });
    if (is_in) connections_.send(member, protocol::Notice{text});
  }
}

}  // namespace pccl::master
