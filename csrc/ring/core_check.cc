// The part of RingCore that asserts its invariants: the promises of core.h, and the rules that hold
// between its parts.

#include <algorithm>

#include "csrc/base/assert.h"
#include "csrc/ring/core.h"

namespace pccl::ring {

// ---- The engine compares these with its own tables ----

const RingCore::Link* RingCore::find_link(PeerId peer) const {
  const auto at = links_.find(peer);
  return at == links_.end() ? nullptr : &at->second;
}

bool RingCore::lands(LaneId lane) const {
  const Link* const link = find_link(lane.peer);
  return link != nullptr && lane.index < link->lanes.size() &&
         link->lanes[lane.index].landing.any();
}

bool RingCore::sends(LaneId lane) const {
  const Link* const link = find_link(lane.peer);
  return link != nullptr && lane.index < link->lanes.size() &&
         link->lanes[lane.index].sending.any();
}

size_t RingCore::kept_messages() const {
  size_t count = 0;
  for (const auto& [peer, link] : links_) count += link.eager.kept();
  return count;
}

size_t RingCore::lanes(PeerId peer) const {
  const Link* const link = find_link(peer);
  return link == nullptr ? 0 : link->lanes.size();
}

// ---- Invariants ----

void RingCore::check() const {
  size_t queued = 0, in_queues = 0;
  for (const auto& [peer, link] : links_) {
    PCCL_ASSERT(link.peer == peer && link.epoch == epoch_);
    link.check(operations_);
    const long landing = link.eager.check(operations_);
    const auto is_kept = [](const PeerLink::Lane& lane) {
      return lane.landing.unexpected.has_value();
    };
    PCCL_ASSERT(landing == std::count_if(link.lanes.begin(), link.lanes.end(), is_kept));
    in_queues += link.queue.size();
  }
  operations_.check();
  operations_.each([&](const Operation& operation) {
    check_operation(operation);
    if (operation.queued) ++queued;
  });
  PCCL_ASSERT(queued == in_queues);  // so no queue holds an operation that has ended
  for (const auto& [peer, link] : links_) link.queue.check();
}

void RingCore::check_operation(const Operation& operation) const {
  const Task& task = operation.task;
  PCCL_ASSERT(task.epoch == epoch_);
  PCCL_ASSERT(operation.done_at.size() <= members_.size());
  if (operation.queued) {
    const Link* const downstream = find_link(task.downstream);
    PCCL_ASSERT(downstream != nullptr && downstream->queue.contains(operation));
  }
  PCCL_ASSERT(operations_.pulled() == 0 || !operation.progress.in_step());
  if (operation.owes_credit()) {
    const Link* const upstream = find_link(task.upstream);
    PCCL_ASSERT(upstream == nullptr || (!operation.credit_lane && !upstream->free_lane()));
  }
}

}  // namespace pccl::ring
