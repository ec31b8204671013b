// Asserts the invariants of LinkCore (core.h). The simulator calls it after every step.

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/link/core.h"

namespace pccl::link {

void LinkCore::check() const {
  PCCL_ASSERT(effects_ == nullptr);
  size_t placed = 0;
  for (const auto& [peer, link] : links_) {
    check(peer, link);
    placed += link.lanes.size() + link.opening.size();
  }
  for (const auto& [peer, dial] : dialling_) {
    check(peer, dial);
    placed += dial.redial.attempts().size() + (dial.crossing ? 1 : 0);
  }
  check_queues();
  PCCL_ASSERT(placed == lanes_.size());
  check_choices();
  keys_.check();
}

void LinkCore::check(PeerId peer, const Link& link) const {
  PCCL_ASSERT(peer && peer != identity_.self && !link.lanes.empty());
  PCCL_ASSERT(link.lanes.size() + link.opening.size() <= std::max(options_.lanes_max, 1u));
  PCCL_ASSERT(protocol::made_by_higher(link.serial) ==
              (link.dialled.has_value() == outranks(peer)));
  check_keys(peer, link);
  for (const ConnectionId id : link.lanes) {
    const auto at = lanes_.find(id);
    PCCL_ASSERT(at != lanes_.end());
    const Lane& lane = at->second;
    PCCL_ASSERT(lane.phase == Phase::kUp && lane.peer == peer && lane.serial == link.serial);
    PCCL_ASSERT(lane.further == (id != link.lanes.front()));
    PCCL_ASSERT(lane.dialled == link.dialled.has_value() && !lane.keepalive.too_long());
  }
  for (const ConnectionId id : link.opening) {
    const auto at = lanes_.find(id);
    PCCL_ASSERT(at != lanes_.end());
    const Lane& lane = at->second;
    PCCL_ASSERT(lane.phase == Phase::kConnecting || lane.phase == Phase::kHandshaking);
    PCCL_ASSERT(lane.further && lane.dialled && link.dialled);
    PCCL_ASSERT(lane.peer == peer && lane.serial == link.serial);
  }
}

void LinkCore::check_keys(PeerId peer, const Link& link) const {
  PCCL_ASSERT(link.credential.has_value() == keys_.required());
  if (!link.credential) return;
  const protocol::LaneIdentity& identity = link.credential->identity;
  PCCL_ASSERT(identity.dialler == (link.dialled ? identity_.self : peer));
  PCCL_ASSERT(identity.acceptor == (link.dialled ? peer : identity_.self));
  for (const ConnectionId id : link.lanes) PCCL_ASSERT(lanes_.at(id).credential == link.credential);
}

void LinkCore::check(PeerId peer, const Dialling& dial) const {
  PCCL_ASSERT(!links_.contains(peer));
  PCCL_ASSERT(dial.credential.has_value() == keys_.required());
  const Redial& redial = dial.redial;
  redial.check();
  const bool explored = is_exploring(peer);
  const bool waits = explored && exploring_.front() != peer && redial.has_more();
  PCCL_ASSERT(!redial.attempts().empty() || redial.pauses() || waits);
  PCCL_ASSERT(!redial.pauses() || !explored);
  for (const auto& [id, address] : redial.attempts()) {
    const auto at = lanes_.find(id);
    PCCL_ASSERT(at != lanes_.end());
    const Lane& lane = at->second;
    PCCL_ASSERT(lane.dialled && !lane.further && lane.peer == peer && lane.at == address);
    const bool shakes = lane.phase == Phase::kHandshaking;
    PCCL_ASSERT(shakes || (lane.phase == Phase::kConnecting && lane.serial == 0));
    PCCL_ASSERT(!shakes || (lane.serial > dial.dead_serial && lane.serial <= last_serial(peer)));
  }
  if (!dial.crossing) return;
  const auto at = lanes_.find(*dial.crossing);
  PCCL_ASSERT(at != lanes_.end() && at->second.phase == Phase::kHandshaking);
  PCCL_ASSERT(!at->second.dialled && !at->second.further && at->second.peer == peer);
  PCCL_ASSERT(at->second.serial > dial.dead_serial && outranks(peer));
}

void LinkCore::check_queues() const {
  for (const PeerId peer : exploring_) {
    PCCL_ASSERT(dialling_.contains(peer));
    PCCL_ASSERT(std::count(exploring_.begin(), exploring_.end(), peer) == 1);
  }
  PCCL_ASSERT(exploring_.empty() || !dialling_.at(exploring_.front()).redial.attempts().empty());
  PCCL_ASSERT(unnamed_.size() <= protocol::kUnnamedLinksMax);
  for (const PeerId peer : unnamed_) {
    PCCL_ASSERT(links_.contains(peer) && !named_.contains(peer));
    PCCL_ASSERT(std::count(unnamed_.begin(), unnamed_.end(), peer) == 1);
  }
  PCCL_ASSERT(answered_early_.empty() || keys_.required());
  for (const auto& [id, shown] : answered_early_) {
    PCCL_ASSERT(shown.identity.acceptor == identity_.self && shown.serial > 0);
    PCCL_ASSERT(!lanes_.contains(id));
  }
}

// A lane that was closed is no longer in `lanes_`. So no step finds it by its id, and no effect
// mentions it again.
void LinkCore::check_closed(const Effects& effects, size_t first) const {
  for (size_t i = first; i < effects.size(); ++i) {
    const Close* const close = std::get_if<Close>(&effects[i]);
    PCCL_ASSERT(close == nullptr || !lanes_.contains(close->lane));
  }
}

void LinkCore::check_choices() const {
  for (const auto& [peer, checking] : checking_) {
    PCCL_ASSERT(links_.contains(peer));
    PCCL_ASSERT(checking.state.number() > 0 && checking.state.number() <= checks_made_);
  }
  narrow_.check();
}

}  // namespace pccl::link
