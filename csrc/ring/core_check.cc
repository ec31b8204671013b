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
  for (const auto& [peer, link] : links_) {
    count += link.contributions.size();
    for (const auto& [op, kept] : link.unexpected_chunks.all()) count += kept.chunks.size();
  }
  return count;
}

size_t RingCore::lanes(PeerId peer) const {
  const Link* const link = find_link(peer);
  return link == nullptr ? 0 : link->lanes.size();
}

// ---- Invariants ----

void RingCore::check() const {
  duplicates_.check();
  size_t queued = 0, in_queues = 0;
  for (const auto& [peer, link] : links_) {
    check_link(peer, link);
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

void RingCore::check_link(PeerId peer, const Link& link) const {
  PCCL_ASSERT(!link.lanes.empty() && link.lanes.size() <= protocol::kLanesMax);
  for (uint32_t index = 0; index < link.lanes.size(); ++index) check_lane(peer, link, index);
  link.unexpected.check();
  link.eager_budget.check();
  for (const auto& [op, bytes] : link.eager_budget.unasked()) {
    PCCL_ASSERT(duplicates_.contains(op));  // it was posted in this epoch
  }
  link.unexpected_chunks.check();
  link.window.check();
  link.requested.check();
  check_kept(peer, link);
  check_unsent(peer, link);
}

void RingCore::check_lane(PeerId peer, const Link& link, uint32_t index) const {
  const Lane& lane = link.lanes[index];
  PCCL_ASSERT(lane.open_sent <= epoch_);
  const InFlightChunk& sending = lane.sending;
  PCCL_ASSERT(!sending.unexpected);
  if (sending.operation != nullptr) {
    PCCL_ASSERT(operations_.holds(sending.operation));
    PCCL_ASSERT(sending.operation->task.downstream == peer && !sending.operation->downstream_lost);
    PCCL_ASSERT(sending.operation->progress.may_be_leaving(sending.chunk));
    PCCL_ASSERT(lane.open_sent == epoch_ && lane.open_received >= epoch_);
  }
  const InFlightChunk& landing = lane.landing;
  if (!landing.any()) return;
  PCCL_ASSERT(lane.open_sent == epoch_ && lane.open_received >= epoch_);
  for (uint32_t other = 0; other < index; ++other) {  // no chunk lands on two lanes
    const InFlightChunk& there = link.lanes[other].landing;
    PCCL_ASSERT(landing.unexpected
                    ? there.unexpected != landing.unexpected
                    : there.operation != landing.operation || there.chunk != landing.chunk);
  }
  if (landing.unexpected) {
    PCCL_ASSERT(landing.operation == nullptr);
    return;  // check_kept() looks for it
  }
  PCCL_ASSERT(operations_.holds(landing.operation));
  const Operation& operation = *landing.operation;
  if (!operation.one_shot.active()) {
    PCCL_ASSERT(operation.task.upstream == peer && !operation.upstream_lost);
    PCCL_ASSERT(operation.progress.is_arriving(landing.chunk));
  } else {
    PCCL_ASSERT(operation.one_shot.rank_of(peer) == landing.chunk);
    PCCL_ASSERT(operation.one_shot.members()[landing.chunk].coming);
  }
}

// Messages for operations that are not posted here. If the link has failed, a message that began to
// arrive may stay incomplete until LinkDown.
void RingCore::check_kept(PeerId peer, const Link& link) const {
  const auto may_be_kept = [this](OpKey op) {
    return !duplicates_.contains(op) || operations_.find(op) != nullptr;
  };
  const auto landing_lanes = [&link](const UnexpectedId& id) {
    return std::count_if(link.lanes.begin(), link.lanes.end(),
                         [&](const Lane& lane) { return lane.landing.unexpected == id; });
  };
  PCCL_ASSERT(link.unexpected.find_unless(may_be_kept) == nullptr);
  long landing = 0;
  uint64_t room = 0;
  PCCL_ASSERT(link.contributions.size() <= protocol::kOpsOpenMax);
  for (const auto& [op, contribution] : link.contributions) {
    const Operation* const operation = operations_.find(op);
    PCCL_ASSERT(may_be_kept(op));
    PCCL_ASSERT(operation == nullptr || !contribution.here);
    const Part* const part = operation == nullptr ? nullptr : operation->part_of(peer);
    PCCL_ASSERT(operation == nullptr ||
                (part != nullptr && part->digest_from == contribution.digest));
    room += Window::cost(contribution.bytes);
    if (contribution.here) continue;
    const auto lanes = landing_lanes({op});
    PCCL_ASSERT(lanes == 1 || (lanes == 0 && link.failed));
    landing += lanes;
  }
  PCCL_ASSERT(link.failed || (link.window.kept() == room && link.requested.kept() == 0));
  for (const auto& [op, kept] : link.unexpected_chunks.all()) {
    const Operation* const operation = operations_.find(op);
    PCCL_ASSERT(may_be_kept(op));
    const Operation* const receiving = operation == nullptr ? nullptr : operation->from(peer);
    PCCL_ASSERT(operation == nullptr ||
                (receiving != nullptr && receiving->task.digest == kept.digest));
    for (const auto& [index, chunk] : kept.chunks) {
      PCCL_ASSERT(operation == nullptr || !chunk.counted);
      PCCL_ASSERT(operation == nullptr || !chunk.here || link.failed);
      if (chunk.here) continue;
      const auto lanes = landing_lanes({op, index});
      PCCL_ASSERT(lanes == 1 || (lanes == 0 && link.failed));
      landing += lanes;
    }
  }
  const auto in_flight = std::count_if(link.lanes.begin(), link.lanes.end(), [](const Lane& lane) {
    return lane.landing.unexpected.has_value();
  });
  PCCL_ASSERT(landing == in_flight);
}

// Contributions that wait to be sent.
void RingCore::check_unsent(PeerId peer, const Link& link) const {
  const Operation* before = nullptr;
  const auto check_one = [&](const Operation* operation) {
    PCCL_ASSERT(operations_.holds(operation));
    const auto rank = operation->one_shot.rank_of(peer);
    PCCL_ASSERT(rank && operation->one_shot.wants_to_send(*rank));
  };
  for (const Operation* operation : link.unsent) {
    check_one(operation);
    PCCL_ASSERT(before == nullptr || before->serial < operation->serial);
    before = operation;
  }
  const auto& requested = link.unsent_requested;
  for (const Operation* operation : requested) {
    check_one(operation);
    PCCL_ASSERT(std::count(requested.begin(), requested.end(), operation) == 1);
    PCCL_ASSERT(std::count(link.unsent.begin(), link.unsent.end(), operation) == 0);
  }
  if (!free_lane(link)) return;  // on_open() queues the missing ones
  size_t wanting = 0;
  for (const auto& [key, operation] : operations_) {
    const auto rank = operation.one_shot.rank_of(peer);
    if (rank && operation.one_shot.wants_to_send(*rank)) ++wanting;
  }
  PCCL_ASSERT(wanting == link.unsent.size() + requested.size());
}

void RingCore::check_operation(const Operation& operation) const {
  const Task& task = operation.task;
  PCCL_ASSERT(task.epoch == epoch_ && duplicates_.contains(task.op));
  PCCL_ASSERT(operation.done_at.size() <= members_.size());
  if (operation.queued) {
    const Link* const downstream = find_link(task.downstream);
    PCCL_ASSERT(downstream != nullptr && downstream->queue.contains(operation));
  }
  PCCL_ASSERT(operations_.pulled() == 0 || !operation.progress.in_step());
  if (operation.owes_credit()) {
    const Link* const upstream = find_link(task.upstream);
    PCCL_ASSERT(upstream == nullptr || (!operation.credit_lane && !free_lane(*upstream)));
  }
  if (operation.one_shot.active()) check_to_come(operation);
}

// A contribution is to come if it has not begun to arrive, is arriving, or never will be here: its
// link went down or failed.
void RingCore::check_to_come(const Operation& operation) const {
  uint32_t least = 0, most = 0;
  const auto& members = operation.one_shot.members();
  for (uint32_t rank = 0; rank < members.size(); ++rank) {
    if (rank == operation.one_shot.own_rank()) continue;
    const OneShot::Other& member = members[rank];
    const Link* const link = find_link(member.part.peer);
    if (member.part.from == 0) continue;
    if (!member.coming) {
      ++least;
      ++most;
    } else if (member.lost || link == nullptr || link->failed) {
      ++most;
    } else {
      const bool arriving =
          link->contributions.contains(operation.task.op) ||
          std::any_of(link->lanes.begin(), link->lanes.end(),
                      [&](const Lane& lane) { return lane.landing.operation == &operation; });
      least += arriving ? 1 : 0;
      most += arriving ? 1 : 0;
    }
  }
  PCCL_ASSERT(least <= operation.one_shot.to_come() && operation.one_shot.to_come() <= most);
}

}  // namespace pccl::ring
