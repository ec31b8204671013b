// States of a lane, from LaneUp to LinkDown:
//   state       reached by                                                   may leave on it
//   up          LaneUp, or an epoch without the peer at the other end        Open
//   open sent   this peer has sent Open(epoch)                               Open
//   ready       this peer has also received Open(epoch)                      all frames
//   failed      its link broke a rule: all is ignored until LinkDown         nothing
// An operation is in flight from OpPosted to OpEnded, and then drained. While it is in flight, each
// lane carries at most one of its chunks per direction. When all chunks have been sent and
// received, the operation is transferred.

#include "csrc/ring/core.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/ring/announce.h"

namespace pccl::ring {
namespace {

// Builds without NDEBUG check the invariants. They do so after every step while there are at most
// this number of operations and early messages together, and after fewer steps while there are
// more.
[[maybe_unused]] constexpr size_t kObjectsCheckedAlways = 64;

std::string text(OpKey op) {
  return "(tag " + std::to_string(op.tag.value) + ", #" + std::to_string(op.sequence) + ")";
}

}  // namespace

void RingCore::step(const Event& event, Effects& effects) {
  std::visit([&](const auto& what) { on(what, effects); }, event);
#ifndef NDEBUG
  // With many objects, only some steps count the objects and check, so that a step stays cheap.
  if (++unchecked_ * kObjectsCheckedAlways < objects_) return;
  unchecked_ = 0;
  objects_ = operations_.size() + kept_messages();
  for (const auto& [peer, link] : links_) objects_ += link.eager.size();
  check();
#endif
}

// ---- Epochs and links ----

void RingCore::on(const EpochBegun& event, Effects& effects) {
  PCCL_ASSERT(event.epoch > epoch_);
  epoch_ = event.epoch;
  // No lane is ready from now on: draining an operation sends nothing.
  for (auto& [peer, link] : links_) link.epoch = epoch_;
  members_ = event.peers;
  while (operations_.size() > 0) drain(operations_.begin()->second, {}, effects);
  operations_.begin_epoch();
  for (auto& [peer, link] : links_) {
    link.eager.begin_epoch(effects);
    for (uint32_t lane = 0; lane < link.lanes.size(); ++lane) send_open(link, lane, effects);
  }
}

void RingCore::on(const LaneUp& event, Effects& effects) {
  Link& link = links_.try_emplace(event.lane.peer, event.lane.peer).first->second;
  PCCL_ASSERT(event.lane.index == link.lanes.size());
  link.epoch = epoch_;
  link.lanes.emplace_back().open_sent = event.opened;
  link.same_machine = event.same_machine;
  if (event.opened != epoch_) send_open(link, event.lane.index, effects);
}

void RingCore::on(const LaneWindow& event, Effects&) {
  Link* const link = find_link(event.lane.peer);
  if (link == nullptr || event.lane.index >= link->lanes.size()) return;  // it is gone
  link->lanes[event.lane.index].window = event.bytes;
}

void RingCore::on(const LinkDown& event, Effects& effects) {
  Link* const link = find_link(event.peer);
  if (link == nullptr) return;
  link->eager.drop_all(effects);
  for (uint32_t index = 0; index < link->lanes.size(); ++index) {
    const PeerLink::Lane& lane = link->lanes[index];
    const LaneId id{event.peer, index};
    if (lane.landing.any()) effects.push_back(Revoke{id});
    if (lane.sending.any()) effects.push_back(Withdraw{id});
  }
  operations_.each([&](Operation& operation) {
    if (operation.task.upstream == event.peer) operation.upstream_lost = true;
    if (operation.task.downstream == event.peer) {
      operation.downstream_lost = true;
      operation.queued = false;
    }
  });
  links_.erase(event.peer);
}

void RingCore::on(const LanesInactive& event, Effects& effects) {
  Link* const link = find_link(event.peer);
  if (link == nullptr) return;
  link->inactive = event.lanes;
  serve(*link, effects);
}

RingCore::Link* RingCore::find_link(PeerId peer) {
  const auto at = links_.find(peer);
  return at == links_.end() ? nullptr : &at->second;
}

std::optional<protocol::FrameHeader> RingCore::open_frame(PeerId peer) const {
  const bool member = std::find(members_.begin(), members_.end(), peer) != members_.end();
  if (!epoch_ || !member) return std::nullopt;
  protocol::FrameHeader header;
  header.type = protocol::FrameType::kOpen;
  header.epoch = epoch_;
  return header;
}

void RingCore::send_open(Link& link, uint32_t lane, Effects& effects) {
  const auto header = open_frame(link.peer);
  if (link.failed || !header) return;
  link.lanes[lane].open_sent = header->epoch;
  effects.push_back(SendFrame{{link.peer, lane}, *header});
}

// ---- Frames ----

void RingCore::on(const FrameArrived& event, Effects& effects) {
  Link* const link = find_link(event.lane.peer);
  if (link == nullptr || link->failed) return;
  switch (event.header.type) {
    case protocol::FrameType::kOpen: return on_open(event.lane, *link, event.header, effects);
    case protocol::FrameType::kCredit: return on_credit(event.lane, *link, event.header, effects);
    case protocol::FrameType::kDone: return on_done(event.lane, *link, event.header, effects);
    default:
      link->fail(
          "frame of type " + std::to_string(static_cast<int>(event.header.type)) + " out of place",
          effects);
  }
}

void RingCore::on_open(LaneId id, Link& link, const protocol::FrameHeader& header,
                       Effects& effects) {
  PeerLink::Lane& lane = link.lanes[id.index];
  if (header.epoch <= lane.open_received) {
    return link.fail(
        "epoch " + pccl::text(header.epoch) + " opened after " + pccl::text(lane.open_received),
        effects);
  }
  lane.open_received = header.epoch;
  if (!link.ready(lane)) return;
  for (auto& [key, operation] : operations_) {
    if (Operation* const receiving = operation.from(id.peer)) grant(*receiving, effects);
  }
  serve(link, effects);
}

void RingCore::on_credit(LaneId id, Link& link, const protocol::FrameHeader& header,
                         Effects& effects) {
  if (header.epoch < epoch_) return;
  const PeerId peer = id.peer;
  if (!link.ready(link.lanes[id.index]) || header.epoch != epoch_) {
    return link.fail(
        "credit in epoch " + pccl::text(header.epoch) + " before both sides had opened it",
        effects);
  }
  Operation* const operation = operations_.find(header.op);
  link.eager.requested(header.op);
  if (operation == nullptr && operations_.knows(header.op)) return;
  if (operation == nullptr) {
    if (link.eager.keep(header)) {
      if (header.round == protocol::kPullRound)
        effects.push_back(Requested{epoch_, peer, header.op, header.digest, header.block});
      return;
    }
    return link.fail("credit for more than " + std::to_string(protocol::kOpsOpenMax) +
                         " operations that were not called here",
                     effects);
  }
  // Credit with another digest is ignored: the master reports the mismatch to all members.
  Operation* const sending = operation->to(peer);
  if (header.digest != (sending == nullptr ? operation : sending)->task.digest) return;
  if (sending == nullptr) {
    return link.fail("credit for " + text(header.op) + " from a peer that is not downstream of it",
                     effects);
  }
  sending->allowed = std::max(sending->allowed, header.value);
  enqueue(*sending, effects);
}

// Ignores the frame if its operation has ended here or has a different digest: the master then
// settles the operation.
void RingCore::on_done(LaneId id, Link& link, const protocol::FrameHeader& header,
                       Effects& effects) {
  if (header.epoch < epoch_) return;
  if (!link.ready(link.lanes[id.index]) || header.epoch != epoch_) {
    return link.fail(
        "kDone in epoch " + pccl::text(header.epoch) + " before both sides had opened it", effects);
  }
  Operation* const operation = operations_.find(header.op);
  if (operation == nullptr || operation->task.digest != header.digest) return;
  auto& done_at = operation->done_at;
  if (std::find(done_at.begin(), done_at.end(), id.peer) != done_at.end()) return;
  done_at.push_back(id.peer);
  announce_if_agreed(*operation, effects);
}

// ---- Chunks ----

void RingCore::on(const ChunkArriving& event, Effects& effects) {
  Link* const link = find_link(event.lane.peer);
  InFlightChunk landing;
  if (link != nullptr && !link->failed) {
    PCCL_ASSERT(!link->lanes[event.lane.index].landing.any());
    std::string why = judge(event.lane, *link, event.header, landing);
    if (!why.empty()) link->fail(std::move(why), effects);
  }
  if (!landing.any()) {
    effects.push_back(Discard{event.lane});
    return;
  }
  link->lanes[event.lane.index].landing = landing;
  if (landing.unexpected) {
    effects.push_back(LandUnexpected{event.lane, *landing.unexpected, event.header.length});
    return;
  }
  Operation& operation = *landing.operation;
  operation.progress.arriving(landing.chunk);
  operation.note_absent({event.header.value});
  const Chunk chunk = operation.schedule.chunk_received(landing.chunk);
  effects.push_back(Land{event.lane, operation.task.handle, chunk, operation.schedule.action(chunk),
                         operation.absent().count()});
  if (!operation.is_one_shot()) return;
  Operation* const back = operation.whole->to(event.lane.peer);
  if (back == nullptr) return;
  back->allowed = back->schedule.step_count();  // core.h, (6)
  enqueue(*back, effects);
}

std::string RingCore::judge(LaneId id, Link& link, const protocol::FrameHeader& header,
                            InFlightChunk& landing) {
  if (header.epoch < epoch_) return {};
  if (!link.ready(link.lanes[id.index]) || header.epoch != epoch_) {
    return "chunk in epoch " + pccl::text(header.epoch) + " before both sides had opened it";
  }
  link.eager.requested(header.op);  // the other end has posted it
  Operation* found = operations_.find(header.op);
  if (found == nullptr && !operations_.knows(header.op)) return link.eager.judge(header, landing);
  if (found == nullptr) return {};
  Operation* const receiving = found->from(id.peer);
  if ((receiving == nullptr ? found : receiving)->task.digest != header.digest) return {};
  if (receiving == nullptr)
    return "chunk of " + text(header.op) + " from a peer that is not upstream of it";
  found = receiving;
  // Upstream gave up in the middle of a chunk, or its link went down: the rest is discarded.
  if (found->upstream_lost || found->voided) return {};
  uint64_t chunk = 0;
  std::string why = found->judge(header, chunk);
  if (why.empty()) landing = {found, chunk};
  return why;
}

void RingCore::on(const ChunkArrived& event, Effects& effects) {
  Link* const link = find_link(event.lane.peer);
  PCCL_ASSERT(link != nullptr);
  const InFlightChunk landed = std::exchange(link->lanes[event.lane.index].landing, {});
  PCCL_ASSERT(landed.any());
  if (landed.unexpected) {
    Operation* const whole = operations_.find(landed.unexpected->op);
    if (link->eager.arrived(*landed.unexpected, event.valid, whole, effects))
      take_unexpected(*link, *whole->from(event.lane.peer), landed.unexpected->index, effects);
    return;
  }
  Operation& operation = *landed.operation;
  if (!event.valid) {
    operation.voided = true;
    return;
  }
  link->arrived(operation);
  chunk_arrived(operation, landed.chunk, effects);
}

void RingCore::chunk_arrived(Operation& operation, uint64_t id, Effects& effects) {
  operation.progress.arrived(id);
  if (operation.is_leg()) contributed(operation, operation.schedule.chunk_received(id), effects);
  grant(operation, effects);
  enqueue(operation, effects);
  announce_progress(operation.is_leg() ? *operation.whole : operation, effects);
  announce_if_transferred(operation, effects);
}

void RingCore::on(const ChunkSent& event, Effects& effects) {
  Link* const link = find_link(event.lane.peer);
  PCCL_ASSERT(link != nullptr);
  PeerLink::Lane& lane = link->lanes[event.lane.index];
  const InFlightChunk gone = std::exchange(lane.sending, {});
  PCCL_ASSERT(gone.operation != nullptr);
  lane.copied -= std::exchange(lane.copied_before, 0);
  gone.operation->progress.sent(gone.chunk);
  if (gone.operation->is_leg())
    result_left(*gone.operation, gone.operation->schedule.chunk_sent_for(gone.chunk), effects);
  grant(*gone.operation, effects);
  serve(*link, effects);
  announce_if_transferred(*gone.operation, effects);
}

// The contributions to a one-shot operation are combined when all are here. A slice of a block of a
// direct all-reduce goes through these stages at its owner:
//   contributions come      each lands in a slot of its sender
//   the last one is here    Combine; then its results may leave to all others, and the slots of the
//                           slice are free: that is new credit for all others
//   a result is held        when it has left to all others, its slot is free: only then the credit
void RingCore::contributed(Operation& leg, const Chunk& chunk, Effects& effects) {
  Operation& whole = *leg.whole;
  if (leg.schedule.action(chunk) != Action::kGather) return;
  if (!whole.owner.arrived(chunk.slice)) return;
  Chunk result;
  if (!whole.is_one_shot()) {
    result = whole.schedule.written(uint64_t{chunk.slice} * whole.task.shape.world +
                                    whole.task.shape.rank);
  }
  effects.push_back(Combine{whole.task.handle, result, whole.absent().count()});
  if (whole.is_one_shot()) return;
  for (const auto& part : whole.parts) {
    if (!part->schedule.sends()) {
      grant(*part, effects);
      continue;
    }
    part->progress.unlock(part->schedule.result_id(chunk.slice));
    enqueue(*part, effects);
  }
}

void RingCore::result_left(Operation& leg, const Chunk& chunk, Effects& effects) {
  Operation& whole = *leg.whole;
  if (leg.schedule.action(chunk) != Action::kStore || !whole.owner.left(chunk.slice)) return;
  for (const auto& part : whole.parts) {
    if (!part->schedule.sends()) grant(*part, effects);
  }
}

// ---- Operations ----

std::optional<Epoch> RingCore::posted(OpKey op) {
  const Operation* const operation = operations_.find(op);
  return operation == nullptr ? std::nullopt : std::optional(operation->task.epoch);
}

void RingCore::on(const OpPosted& event, Effects& effects) {
  const Task& task = event.task;
  PCCL_ASSERT(task.epoch == epoch_);
  Operation& operation = operations_.add(task);
  if (task.pulled && operations_.pulled() == 1) let_all_run_ahead(effects);
  operation.each([&](Operation& one) { begin_chunks(one, effects); });
  for (auto& [peer, link] : links_) {
    for (const uint32_t index : link.eager.posted(operation, effects)) {
      if (!link.failed) take_unexpected(link, *operation.from(peer), index, effects);
    }
  }
  announce_if_transferred(operation, effects);
}

void RingCore::take_unexpected(Link& link, Operation& operation, uint32_t index, Effects& effects) {
  if (const auto id = link.eager.take(operation, index, effects))
    chunk_arrived(operation, *id, effects);
}

void RingCore::begin_chunks(Operation& operation, Effects& effects) {
  const Task& task = operation.task;
  Link* const downstream = find_link(task.downstream);
  if (downstream != nullptr) {
    downstream->eager.allow(operation);
    const bool in_step = downstream->same_machine && operations_.pulled() == 0;
    if (in_step && !task.shape.wan) operation.progress.go_in_step();
  }
  grant(operation, effects);
  enqueue(operation, effects);
}

// An operation that goes in step leaves its lane free again and again. Pieces of shared state yield
// to the operation, but they would leave each time the lane is free, and so delay the operation. So
// no operation goes in step while pieces are in flight. The receiver of the pieces lets its
// operations run ahead, too: if only one of two neighbours runs ahead, they wait for each other.
void RingCore::let_all_run_ahead(Effects& effects) {
  operations_.each([&](Operation& one) {
    one.progress.run_ahead();
    enqueue(one, effects);
  });
}

void RingCore::on(const OpEnded& event, Effects& effects) {
  operations_.ended(event.op);
  for (auto& [peer, link] : links_) {
    const auto dropped = link.eager.drop(event.op, effects);
    if (dropped) release(link, event.op, *dropped, effects);
  }
  Operation* const operation = operations_.find(event.op);
  if (operation != nullptr) drain(*operation, event, effects);
}

// Members without a ready lane learn from the master that the operation is done.
void RingCore::on(const OpDone& event, Effects& effects) {
  Operation* const operation = operations_.find(event.op);
  if (operation == nullptr) return;
  operation->done_here = true;
  for (const PeerId peer : members_) {
    Link* const link = find_link(peer);
    const auto index = link == nullptr ? std::nullopt : link->free_lane();
    if (index)
      effects.push_back(SendFrame{{peer, *index}, operation->header(protocol::FrameType::kDone)});
  }
  announce_if_agreed(*operation, effects);
}

// The operation is over here, and the eager data that was kept for it is dropped. Credit for 0
// steps gives the other end its budget back.
void RingCore::release(Link& link, OpKey op, uint64_t digest, Effects& effects) {
  const auto lane = link.free_lane();
  if (!lane) return;
  protocol::FrameHeader header;
  header.type = protocol::FrameType::kCredit;
  header.epoch = epoch_;
  header.op = op;
  header.digest = digest;
  effects.push_back(SendFrame{{link.peer, *lane}, header});
}

// Whether a contribution leaves to the sender of this leg. It shows that the operation is posted
// here, so the leg needs no credit.
bool RingCore::shows_post(const Operation& leg) const {
  if (!leg.is_one_shot()) return false;
  const Operation* const back = leg.whole->to(leg.task.upstream);
  return back != nullptr && back->allowed > 0;
}

// Announces the credit to upstream, never for more steps than the operation has. All credits of an
// operation use one lane, so they keep their order.
void RingCore::grant(Operation& operation, Effects& effects) {
  if (!operation.owes_credit()) return;
  if (shows_post(operation)) {
    operation.granted = operation.credit();
    return;
  }
  Link* const link = find_link(operation.task.upstream);
  if (link == nullptr) return;
  if (!operation.credit_lane) operation.credit_lane = link->free_lane();
  if (!operation.credit_lane) return;  // on_open() grants it later
  operation.granted = operation.credit();
  protocol::FrameHeader header = operation.header(protocol::FrameType::kCredit);
  header.value = operation.granted;
  if (operation.task.pulled) {
    header.round = protocol::kPullRound;
    header.block = operation.task.what;
  }
  effects.push_back(SendFrame{{operation.task.upstream, *operation.credit_lane}, header});
}

void RingCore::enqueue(Operation& operation, Effects& effects) {
  if (operation.queued || !operation.can_send()) return;
  Link* const link = find_link(operation.task.downstream);
  PCCL_ASSERT(link != nullptr);  // it was up at `allowed` > 0; downstream_lost records its loss
  link->queue.push(operation);
  serve(*link, effects);
}

void RingCore::serve(Link& link, Effects& effects) {
  while (!link.queue.empty()) {
    const bool one_shot = link.queue.first().is_one_shot();
    const auto index = one_shot ? link.lane_for_contribution()
                                : link.lane_for_chunk(link.queue.first(), link.queue.bytes_left());
    if (!index || (!one_shot && link.holds_back(link.queue.first()))) return;
    Operation& operation = link.queue.pop();
    // A chunk may have arrived since the operation was queued. If that chunk is now the next one to
    // send, it may belong to a step without credit.
    if (!operation.can_send()) continue;
    const uint64_t id = operation.progress.take();
    PeerLink::Lane& lane = link.lanes[*index];
    const bool copied = one_shot && lane.has_room_for_copy();
    if (!copied) {
      lane.sending = {&operation, id};
      lane.copied_before = lane.copied;
    }
    link.next = *index + 1;
    link.leaves(operation);
    if (operation.can_send()) link.queue.push(operation);
    const Chunk chunk = operation.schedule.chunk_sent_for(id);
    protocol::FrameHeader header = operation.header(protocol::FrameType::kChunk);
    header.round = chunk.round;
    header.block = chunk.block;
    header.slice = chunk.slice;
    header.length = chunk.wire_bytes;
    header.value = operation.absent().bits;
    effects.push_back(SendChunk{{link.peer, *index}, header, operation.task.handle, chunk, copied});
    if (!copied) continue;
    lane.copied += eager_cost(header.length);
    operation.progress.sent(id);
    announce_if_transferred(operation, effects);
  }
}

void RingCore::announce_if_agreed(Operation& operation, Effects& effects) {
  if (!operation.done_here || operation.done_at.size() < members_.size()) return;
  effects.push_back(OpAgreed{operation.task.epoch, operation.task.op});
}

void RingCore::drain(Operation& operation, const OpEnded& end, Effects& effects) {
  std::vector<PeerId> served;
  operation.each([&](Operation& one) {
    stop_chunks(one, effects);
    if (one.task.downstream) served.push_back(one.task.downstream);
  });
  operation.each([&](Operation& one) {
    if (!one.is_leg()) give_back(one, end, effects);
  });
  effects.push_back(OpDrained{operation.task.epoch, operation.task.op});
  operations_.remove(operation.task.op);
  for (const PeerId peer : served) {
    if (Link* const link = find_link(peer)) serve(*link, effects);
  }
}

// Afterwards, no chunk lands in the memory of the operation, and no chunk leaves from it.
void RingCore::stop_chunks(Operation& operation, Effects& effects) {
  const Task& task = operation.task;
  Link* const upstream = find_link(task.upstream);
  const auto is_its = [&](const InFlightChunk& landing) { return landing.operation == &operation; };
  if (upstream != nullptr) upstream->revoke(is_its, effects);
  Link* const downstream = find_link(task.downstream);
  if (downstream == nullptr) return;
  if (operation.queued) downstream->queue.remove(operation);
  downstream->withdraw(operation, effects);
}

void RingCore::give_back(const Operation& operation, const OpEnded& end, Effects& effects) {
  const Task& task = operation.task;
  const uint64_t kept = end.keep * task.shape.element_bytes;
  if (end.ending != Ending::kCommitted) effects.push_back(Restore{task.handle, kept});
  if (kept > 0) {
    effects.push_back(Retain{task.handle, kept, task.epoch, task.op});
  } else {
    effects.push_back(Release{task.handle});
  }
}

}  // namespace pccl::ring
