// States of a lane, from LaneUp to LinkDown:
//   state       reached by                                                   may leave on it
//   up          LaneUp, or an epoch without the peer at the other end        Open
//   open sent   this peer has sent Open(epoch)                               Open
//   ready       this peer has also received Open(epoch)                      all frames
//   failed      its link broke a rule: all is ignored until LinkDown         nothing
// kStageTransitions has the stages of an operation, from OpPosted to OpEnded. While it is in
// flight, each lane carries at most one of its chunks per direction. When all chunks have been sent
// and received, the operation is transferred.

#include "csrc/ring/core.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/transitions.h"

namespace pccl::ring {
namespace {

constexpr uint64_t kProgressSteps = 64;
// Builds without NDEBUG check the invariants after every step with up to this many operations and
// messages for operations that are not posted yet.
[[maybe_unused]] constexpr size_t kObjectsCheckedAlways = 64;
// Two more round trips for a chunk on a narrow lane: one for the bytes queued on the lane before
// it, and one for its last bytes.
constexpr uint64_t kRoundTripsMore = 2;
// The most lanes for all parts or legs of one operation together.
constexpr uint32_t kLanesOfParts = 52;

enum class Stage { kPosted, kParked, kInFlight, kDrained };

const char* name_of(Stage stage) {
  switch (stage) {
    case Stage::kPosted: return "posted";
    case Stage::kParked: return "parked";
    case Stage::kInFlight: return "in flight";
    case Stage::kDrained: return "drained";
  }
  return "unknown";
}

// The ring knows an operation from OpPosted on, and has forgotten it once it is drained.
const Transitions<Stage, 5> kStageTransitions(
    "an operation on the ring", name_of,
    {{Stage::kPosted, Stage::kInFlight, "OpPosted"},
     {Stage::kPosted, Stage::kParked, "OpPosted, and its data is still to be staged"},
     {Stage::kParked, Stage::kInFlight, "OpStaged", "Unpark"},
     {Stage::kParked, Stage::kDrained, "OpEnded", "Release, OpDrained"},
     {Stage::kInFlight, Stage::kDrained, "OpEnded",
      "Revoke and Withdraw for each lane that carries it; Restore unless committed; Release or "
      "Retain, OpDrained"}});

std::string text(OpKey op) {
  return "(tag " + std::to_string(op.tag.value) + ", #" + std::to_string(op.sequence) + ")";
}

std::string position_text(uint32_t round, uint32_t block, uint32_t slice, uint32_t bytes) {
  return "round " + std::to_string(round) + ", block " + std::to_string(block) + ", slice " +
         std::to_string(slice) + ", " + std::to_string(bytes) + " bytes";
}

protocol::FrameHeader header_of(const Operation& operation, protocol::FrameType type) {
  protocol::FrameHeader header;
  header.type = type;
  header.epoch = operation.task.epoch;
  header.op = operation.task.op;
  header.digest = operation.task.digest;
  return header;
}

}  // namespace

void RingCore::step(const Event& event, Effects& effects) {
  std::visit([&](const auto& what) { on(what, effects); }, event);
#ifndef NDEBUG
  // With many operations not every step is checked, so that a step stays cheap.
  size_t objects = operations_.size() + kept_messages();
  for (const auto& [peer, link] : links_) objects += link.unexpected.size();
  if (++unchecked_ * kObjectsCheckedAlways < objects) return;
  unchecked_ = 0;
  check();
#endif
}

// ---- Epochs and links ----

void RingCore::on(const EpochBegun& event, Effects& effects) {
  PCCL_ASSERT(event.epoch > epoch_);
  epoch_ = event.epoch;  // no lane is ready from now on: draining an operation sends nothing
  members_ = event.peers;
  while (operations_.size() > 0) drain(operations_.begin()->second, {}, effects);
  while (!parked_.empty()) drain_parked(parked_.begin()->first, effects);
  duplicates_.clear();
  for (auto& [peer, link] : links_) {
    link.unexpected.clear();
    while (!link.contributions.empty())
      drop_contribution(peer, link, link.contributions.begin()->first, effects);
    while (!link.unexpected_chunks.empty())
      drop_unexpected(peer, link, link.unexpected_chunks.first(), effects);
    link.eager_budget = {};
    link.window = Window(Window::kUnrequestedBytes);
    link.requested = Window(Window::kRequestedBytes);
    for (uint32_t index = 0; index < link.lanes.size(); ++index) {
      send_open({peer, index}, link, effects);
    }
  }
}

void RingCore::on(const LaneUp& event, Effects& effects) {
  Link& link = links_[event.lane.peer];
  PCCL_ASSERT(event.lane.index == link.lanes.size());
  link.lanes.emplace_back().open_sent = event.opened;
  link.same_machine = event.same_machine;
  if (event.opened != epoch_) send_open(event.lane, link, effects);
}

void RingCore::on(const LaneWindow& event, Effects&) {
  Link* const link = find_link(event.lane.peer);
  if (link == nullptr || event.lane.index >= link->lanes.size()) return;  // a lane that is gone
  link->lanes[event.lane.index].window = event.bytes;
}

void RingCore::on(const LinkDown& event, Effects& effects) {
  Link* const link = find_link(event.peer);
  if (link == nullptr) return;
  while (!link->unexpected_chunks.empty())
    drop_unexpected(event.peer, *link, link->unexpected_chunks.first(), effects);
  for (uint32_t index = 0; index < link->lanes.size(); ++index) {
    const Lane& lane = link->lanes[index];
    const LaneId id{event.peer, index};
    if (lane.landing.any()) effects.push_back(Revoke{id});
    if (lane.sending.any()) effects.push_back(Withdraw{id});
  }
  for (const auto& [op, contribution] : link->contributions)
    effects.push_back(DropUnexpected{event.peer, {op}});
  operations_.each([&](Operation& operation) {
    operation.one_shot.lost(event.peer);
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
  serve(event.peer, *link, effects);
}

bool RingCore::is_inactive(const Link& link, uint32_t lane) const {
  return ((link.inactive >> lane) & 1) != 0;
}

RingCore::Link* RingCore::find_link(PeerId peer) {
  const auto at = links_.find(peer);
  return at == links_.end() ? nullptr : &at->second;
}

bool RingCore::ready(const Link& link, const Lane& lane) const {
  return !link.failed && epoch_ && lane.open_sent == epoch_ && lane.open_received == epoch_;
}

std::optional<protocol::FrameHeader> RingCore::open_frame(PeerId peer) const {
  const bool member = std::find(members_.begin(), members_.end(), peer) != members_.end();
  if (!epoch_ || !member) return std::nullopt;
  protocol::FrameHeader header;
  header.type = protocol::FrameType::kOpen;
  header.epoch = epoch_;
  return header;
}

void RingCore::send_open(LaneId id, Link& link, Effects& effects) {
  const auto header = open_frame(id.peer);
  if (link.failed || !header) return;
  link.lanes[id.index].open_sent = header->epoch;
  effects.push_back(SendFrame{id, *header});
}

void RingCore::fail(PeerId peer, Link& link, std::string why, Effects& effects) {
  link.failed = true;
  effects.push_back(FailLink{peer, std::move(why)});
}

// ---- Frames ----

void RingCore::on(const FrameArrived& event, Effects& effects) {
  Link* const link = find_link(event.lane.peer);
  if (link == nullptr || link->failed) return;
  switch (event.header.type) {
    case protocol::FrameType::kOpen: return on_open(event.lane, *link, event.header, effects);
    case protocol::FrameType::kCredit: return on_credit(event.lane, *link, event.header, effects);
    case protocol::FrameType::kWindow: return on_window(event.lane, *link, event.header, effects);
    case protocol::FrameType::kDone: return on_done(event.lane, *link, event.header, effects);
    default:
      fail(event.lane.peer, *link,
           "frame of type " + std::to_string(static_cast<int>(event.header.type)) + " out of place",
           effects);
  }
}

void RingCore::on_open(LaneId id, Link& link, const protocol::FrameHeader& header,
                       Effects& effects) {
  Lane& lane = link.lanes[id.index];
  if (header.epoch <= lane.open_received)
    return fail(
        id.peer, link,
        "epoch " + pccl::text(header.epoch) + " opened after " + pccl::text(lane.open_received),
        effects);
  lane.open_received = header.epoch;
  if (!ready(link, lane)) return;
  for (auto& [key, operation] : operations_) {
    if (Operation* const receiving = operation.from(id.peer)) grant(*receiving, effects);
  }
  queue_contributions(id.peer, link, effects);
  serve(id.peer, link, effects);
}

void RingCore::on_credit(LaneId id, Link& link, const protocol::FrameHeader& header,
                         Effects& effects) {
  if (header.epoch < epoch_) return;
  const PeerId peer = id.peer;
  if (!ready(link, link.lanes[id.index]) || header.epoch != epoch_) {
    return fail(peer, link,
                "credit in epoch " + pccl::text(header.epoch) + " before both sides had opened it",
                effects);
  }
  Operation* const operation = operations_.find(header.op);
  const bool asks = header.round == kOneShotRound;
  if (!asks) link.eager_budget.requested(header.op);
  if (operation == nullptr && duplicates_.contains(header.op)) return;
  if (operation == nullptr) {
    if (link.unexpected.keep(header.op, header.digest, header.value)) {
      if (header.round == protocol::kPullRound)
        effects.push_back(Requested{epoch_, peer, header.op, header.digest, header.block});
      return;
    }
    return fail(peer, link,
                "credit for more than " + std::to_string(protocol::kOpsOpenMax) +
                    " operations that were not called here",
                effects);
  }
  if (asks) return on_requested(peer, link, *operation, header.digest, effects);
  // The master reports a mismatch to all members.
  Operation* const sending = operation->to(peer);
  if (header.digest != (sending == nullptr ? operation : sending)->task.digest) return;
  if (sending == nullptr) {
    return fail(peer, link,
                "credit for " + text(header.op) + " from a peer that is not downstream of it",
                effects);
  }
  sending->allowed = std::max(sending->allowed, header.value);
  enqueue(*sending, effects);
}

// Ignores an operation that has ended here or has another digest: the master settles it.
void RingCore::on_done(LaneId id, Link& link, const protocol::FrameHeader& header,
                       Effects& effects) {
  if (header.epoch < epoch_) return;
  if (!ready(link, link.lanes[id.index]) || header.epoch != epoch_) {
    return fail(id.peer, link,
                "kDone in epoch " + pccl::text(header.epoch) + " before both sides had opened it",
                effects);
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
  const bool contribution = event.header.round == kOneShotRound;
  if (link != nullptr && !link->failed) {
    PCCL_ASSERT(!link->lanes[event.lane.index].landing.any());
    std::string why = contribution
                          ? judge_contribution(event.lane, *link, event.header, landing, effects)
                          : judge(event.lane, *link, event.header, landing);
    if (!why.empty()) fail(event.lane.peer, *link, std::move(why), effects);
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
  if (contribution) {
    effects.push_back(Land{event.lane, operation.task.handle,
                           operation.contribution_of(landing.chunk), Action::kGather});
    return;
  }
  operation.progress.arriving(landing.chunk);
  operation.note_absent({event.header.value});
  const Chunk chunk = operation.schedule.chunk_received(landing.chunk);
  effects.push_back(Land{event.lane, operation.task.handle, chunk, operation.schedule.action(chunk),
                         operation.absent().count()});
}

std::string RingCore::judge(LaneId id, Link& link, const protocol::FrameHeader& header,
                            InFlightChunk& landing) {
  if (header.epoch < epoch_) return {};
  if (!ready(link, link.lanes[id.index]) || header.epoch != epoch_) {
    return "chunk in epoch " + pccl::text(header.epoch) + " before both sides had opened it";
  }
  Operation* found = operations_.find(header.op);
  if (found == nullptr && !duplicates_.contains(header.op))
    return judge_unexpected(link, header, landing);
  if (found == nullptr) return {};
  Operation* const receiving = found->from(id.peer);
  if ((receiving == nullptr ? found : receiving)->task.digest != header.digest) return {};
  if (receiving == nullptr)
    return "chunk of " + text(header.op) + " from a peer that is not upstream of it";
  found = receiving;
  // Upstream gave up in the middle of a chunk, or its link went down: the rest is discarded.
  if (found->upstream_lost || found->voided) return {};
  uint64_t chunk = 0;
  std::string why = judge_in_flight(*found, header, chunk);
  if (why.empty()) landing = {found, chunk};
  return why;
}

std::string RingCore::judge_in_flight(const Operation& operation,
                                      const protocol::FrameHeader& header, uint64_t& id) {
  const Schedule& schedule = operation.schedule;
  const auto known = schedule.find(header.round, header.block, header.slice);
  const auto refusal = [&](const std::string& why) {
    return "chunk of " + text(header.op) + ", " +
           position_text(header.round, header.block, header.slice, header.length) + ", " + why;
  };
  if (!known) return refusal("is none of it");
  const Chunk chunk = schedule.chunk_received(*known);
  if (header.length != chunk.wire_bytes)
    return refusal("has " + std::to_string(chunk.wire_bytes) + " bytes");
  if (chunk.step >= operation.granted) return refusal("came without credit");
  if (!operation.progress.expects(*known)) return refusal("came twice");
  if (!operation.may_be_absent({header.value})) return refusal("tells of absent ranks");
  id = *known;
  return {};
}

void RingCore::on(const ChunkArrived& event, Effects& effects) {
  Link* const link = find_link(event.lane.peer);
  PCCL_ASSERT(link != nullptr);
  const InFlightChunk landed = std::exchange(link->lanes[event.lane.index].landing, {});
  PCCL_ASSERT(landed.any());
  if (landed.unexpected && landed.unexpected->index != kUnexpectedContribution)
    return unexpected_arrived(event.lane, *link, *landed.unexpected, event.valid, effects);
  if (landed.unexpected || landed.operation->one_shot.active()) {
    if (event.valid) return contribution_arrived(event.lane, *link, landed, effects);
    return fail(event.lane.peer, *link, "a contribution that is void", effects);
  }
  Operation& operation = *landed.operation;
  if (!event.valid) {
    operation.voided = true;
    return;
  }
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
  const InFlightChunk gone = std::exchange(link->lanes[event.lane.index].sending, {});
  PCCL_ASSERT(gone.operation != nullptr);
  gone.operation->progress.sent(gone.chunk);
  if (gone.operation->is_leg())
    result_left(*gone.operation, gone.operation->schedule.chunk_sent_for(gone.chunk), effects);
  grant(*gone.operation, effects);
  serve(event.lane.peer, *link, effects);
  announce_if_transferred(*gone.operation, effects);
}

// ---- Operations ----

std::optional<Epoch> RingCore::posted(OpKey op) {
  if (const auto at = parked_.find(op); at != parked_.end()) return at->second.epoch;
  const Operation* const operation = operations_.find(op);
  return operation == nullptr ? std::nullopt : std::optional(operation->task.epoch);
}

void RingCore::on(const OpPosted& event, Effects& effects) {
  PCCL_ASSERT(event.task.epoch == epoch_);
  if (!event.task.parked) {
    kStageTransitions.step(Stage::kPosted, Stage::kInFlight);
    return begin(event.task, effects);
  }
  kStageTransitions.step(Stage::kPosted, Stage::kParked);
  PCCL_ASSERT(operations_.find(event.task.op) == nullptr);
  const bool fresh = parked_.emplace(event.task.op, event.task).second;
  PCCL_ASSERT(fresh);
}

void RingCore::on(const OpStaged& event, Effects& effects) {
  const auto at = parked_.find(event.op);
  if (at == parked_.end()) return;  // it has ended, or was posted again with its data
  kStageTransitions.step(Stage::kParked, Stage::kInFlight);
  const Task task = std::move(at->second);
  parked_.erase(at);
  effects.push_back(Unpark{task.handle});
  begin(task, effects);
}

void RingCore::begin(const Task& task, Effects& effects) {
  Operation& operation = operations_.add(task);
  duplicates_.add(task.op);
  if (operation.one_shot.active()) {
    for (auto& [peer, link] : links_) drop_unexpected(peer, link, task.op, effects);
    return begin_one_shot(operation, effects);
  }
  for (auto& [peer, link] : links_) drop_contribution(peer, link, task.op, effects);
  if (task.pulled && operations_.pulled() == 1) let_all_run_ahead(effects);
  operation.each([&](Operation& one) { begin_chunks(one, effects); });
  take_all_unexpected(operation, effects);
  announce_if_transferred(operation, effects);
}

void RingCore::begin_chunks(Operation& operation, Effects& effects) {
  const Task& task = operation.task;
  Link* const downstream = find_link(task.downstream);
  if (downstream != nullptr) {
    const bool requested = downstream->unexpected.contains(task.op);
    operation.allowed = downstream->unexpected.take(task.op, task.digest);
    if (!requested) send_eagerly(operation, *downstream);
    const bool in_step = downstream->same_machine && operations_.pulled() == 0;
    if (in_step && !task.shape.wan) operation.progress.go_in_step();
  }
  grant(operation, effects);
  enqueue(operation, effects);
}

// An operation that goes in step leaves its lane free again and again. A piece of shared state,
// which yields to it, would leave each time and delay it. The receiver of the pieces lets its
// operations run ahead too: two neighbours wait for each other if only one runs ahead.
void RingCore::let_all_run_ahead(Effects& effects) {
  operations_.each([&](Operation& one) {
    one.progress.run_ahead();
    enqueue(one, effects);
  });
}

void RingCore::on(const OpEnded& event, Effects& effects) {
  duplicates_.add(event.op);
  for (auto& [peer, link] : links_) {
    link.unexpected.drop(event.op);
    drop_contribution(peer, link, event.op, effects);
    drop_unexpected(peer, link, event.op, effects);
  }
  if (parked_.contains(event.op)) return drain_parked(event.op, effects);
  Operation* const operation = operations_.find(event.op);
  if (operation != nullptr) drain(*operation, event, effects);
}

// Nothing has moved: its memory is unchanged since the post.
void RingCore::drain_parked(OpKey op, Effects& effects) {
  const auto at = parked_.find(op);
  kStageTransitions.step(Stage::kParked, Stage::kDrained);
  effects.push_back(Release{at->second.handle});
  for (const Part& part : at->second.parts) {
    for (const uint64_t handle : {part.handle_to, part.handle_from}) {
      if (handle > 0) effects.push_back(Release{handle});
    }
  }
  effects.push_back(OpDrained{at->second.epoch, op});
  parked_.erase(at);
}

// Members without a ready lane learn from the master that the operation is done.
void RingCore::on(const OpDone& event, Effects& effects) {
  Operation* const operation = operations_.find(event.op);
  if (operation == nullptr) return;
  operation->done_here = true;
  for (const PeerId peer : members_) {
    Link* const link = find_link(peer);
    const auto index = link == nullptr ? std::nullopt : free_lane(*link);
    if (index)
      effects.push_back(
          SendFrame{{peer, *index}, header_of(*operation, protocol::FrameType::kDone)});
  }
  announce_if_agreed(*operation, effects);
}

// Announces the credit to upstream, never for more steps than the operation has. All credits of an
// operation use one lane, so they keep their order.
void RingCore::grant(Operation& operation, Effects& effects) {
  if (!operation.owes_credit()) return;
  Link* const link = find_link(operation.task.upstream);
  if (link == nullptr) return;
  if (!operation.credit_lane) operation.credit_lane = free_lane(*link);
  if (!operation.credit_lane) return;  // on_open() grants it later
  operation.granted = operation.credit();
  protocol::FrameHeader header = header_of(operation, protocol::FrameType::kCredit);
  header.value = operation.granted;
  if (operation.task.pulled) {
    header.round = protocol::kPullRound;
    header.block = operation.task.what;
  }
  effects.push_back(SendFrame{{operation.task.upstream, *operation.credit_lane}, header});
}

// A lane for a small frame. First choice: a ready, active lane without a chunk; second: a ready,
// active lane; third: any ready lane. The search goes round-robin, because the system may still
// hold the last frame of a lane.
std::optional<uint32_t> RingCore::free_lane(const Link& link) const {
  std::optional<uint32_t> any;
  const auto lanes = static_cast<uint32_t>(link.lanes.size());
  for (uint32_t turn = 0; turn < lanes; ++turn) {
    const uint32_t index = (link.next + turn) % lanes;
    if (!ready(link, link.lanes[index])) continue;
    if (link.lanes[index].sending.operation == nullptr && !is_inactive(link, index)) return index;
    if (!any || (is_inactive(link, *any) && !is_inactive(link, index))) any = index;
  }
  return any;
}

// A lane for the next chunk in the queue: a ready, active lane without a chunk. Call a lane narrow
// if its window is smaller than a chunk: it needs several round trips for one. A narrow lane is
// used only if no other lane is free. While a lane that is not narrow is sending, there is one more
// condition: all lanes together would need longer for the rest of the queue than the narrow lane
// needs for one chunk. Otherwise the chunk waits.
std::optional<uint32_t> RingCore::lane_for_chunk(const Link& link) const {
  const uint64_t chunk = link.queue.first().schedule.slot_bytes();
  const auto lanes = static_cast<uint32_t>(link.lanes.size());
  std::optional<uint32_t> narrow;
  uint64_t windows = 0;
  bool others_under_way = false;
  const uint32_t most = lanes_for(link.queue.first());
  const auto sends = [](const Lane& lane) { return lane.sending.operation != nullptr; };
  if (most < lanes && std::count_if(link.lanes.begin(), link.lanes.end(), sends) >= most)
    return std::nullopt;
  const uint32_t first = most < lanes ? 0 : link.next;  // the same lanes again
  for (uint32_t turn = 0; turn < lanes; ++turn) {
    const uint32_t index = (first + turn) % lanes;
    const Lane& lane = link.lanes[index];
    if (!ready(link, lane) || is_inactive(link, index)) continue;
    windows += lane.window;
    const bool is_narrow = lane.window > 0 && lane.window < chunk;
    if (lane.sending.operation != nullptr) {
      others_under_way |= !is_narrow;
    } else if (!is_narrow) {
      return index;
    } else if (!narrow || lane.window > link.lanes[*narrow].window) {
      narrow = index;
    }
  }
  if (!narrow || !others_under_way) return narrow;
  const uint64_t round_trips = chunk / link.lanes[*narrow].window + kRoundTripsMore;
  return link.queue.bytes_left() > round_trips * windows ? narrow : std::nullopt;
}

// The most lanes of a link that carry chunks of this operation at a time. The parts of an exchange,
// and the legs of a direct all-reduce, leave on all links at once, and share the sending rate of
// this machine. With all lanes of all links, most connections would have windows that are too small
// to recover from a loss without a timeout.
uint32_t RingCore::lanes_for(const Operation& operation) {
  if (operation.whole == nullptr) return protocol::kLanesMax;
  return std::max(kLanesOfParts / (operation.whole->task.shape.world - 1), uint32_t{1});
}

void RingCore::enqueue(Operation& operation, Effects& effects) {
  if (operation.queued || !operation.can_send()) return;
  Link* const link = find_link(operation.task.downstream);
  PCCL_ASSERT(link != nullptr);  // it was up at the post, and downstream_lost records its loss
  link->queue.push(operation);
  serve(operation.task.downstream, *link, effects);
}

void RingCore::serve(PeerId peer, Link& link, Effects& effects) {
  while (!link.queue.empty()) {
    const auto index = lane_for_chunk(link);
    if (!index) return;
    Operation& operation = link.queue.pop();
    // Since it was queued, another chunk may have arrived. The chunk that it sends next may now be
    // that one, and belong to a step without credit.
    if (!operation.can_send()) continue;
    const uint64_t id = operation.progress.take();
    link.lanes[*index].sending = {&operation, id};
    link.next = *index + 1;
    if (operation.can_send()) link.queue.push(operation);
    const Chunk chunk = operation.schedule.chunk_sent_for(id);
    protocol::FrameHeader header = header_of(operation, protocol::FrameType::kChunk);
    header.round = chunk.round;
    header.block = chunk.block;
    header.slice = chunk.slice;
    header.length = chunk.wire_bytes;
    header.value = operation.absent().bits;
    effects.push_back(SendChunk{{peer, *index}, header, operation.task.handle, chunk});
  }
}

// Reports progress about 64 times per operation at most: so little work is repeated after a restart
// of the operation, and the reports cost nothing.
void RingCore::announce_progress(Operation& operation, Effects& effects) {
  if (!operation.task.keep) return;
  const uint64_t finished = operation.finished_elements();
  const uint64_t news = std::max(operation.task.shape.count / kProgressSteps, uint64_t{1});
  if (finished < operation.announced_finished + news) return;
  operation.announced_finished = finished;
  effects.push_back(
      OpProgressed{operation.task.epoch, operation.task.op, finished, operation.absent()});
}

void RingCore::announce_if_transferred(Operation& operation, Effects& effects) {
  if (operation.whole != nullptr) {
    if (operation.progress.finished()) announce_if_transferred(*operation.whole, effects);
    return;
  }
  if (operation.announced_transferred || !operation.finished()) return;
  operation.announced_transferred = true;
  effects.push_back(OpTransferred{operation.task.epoch, operation.task.op, operation.absent()});
}

void RingCore::announce_if_agreed(Operation& operation, Effects& effects) {
  if (!operation.done_here || operation.done_at.size() < members_.size()) return;
  effects.push_back(OpAgreed{operation.task.epoch, operation.task.op});
}

void RingCore::drain(Operation& operation, const OpEnded& end, Effects& effects) {
  kStageTransitions.step(Stage::kInFlight, Stage::kDrained);
  if (operation.one_shot.active()) drain_one_shot(operation, effects);
  std::vector<PeerId> served;
  operation.each([&](Operation& one) {
    stop_chunks(one, effects);
    if (one.task.downstream) served.push_back(one.task.downstream);
  });
  operation.each([&](Operation& one) {
    if (!one.is_leg()) give_back(one, end, effects);
  });
  effects.push_back(OpDrained{operation.task.epoch, operation.task.op});
  const bool exchanged = operation.one_shot.active();
  operations_.remove(operation.task.op);
  if (exchanged) {  // this operation may have kept others from sending
    for (auto& [peer, link] : links_) serve_contributions(peer, link, effects);
  }
  for (const PeerId peer : served) {
    if (Link* const link = find_link(peer)) serve(peer, *link, effects);
  }
}

// From here on, nothing lands in its memory and nothing leaves from there.
void RingCore::stop_chunks(Operation& operation, Effects& effects) {
  const Task& task = operation.task;
  Link* const upstream = find_link(task.upstream);
  for (uint32_t index = 0; upstream != nullptr && index < upstream->lanes.size(); ++index) {
    InFlightChunk& landing = upstream->lanes[index].landing;
    if (landing.operation != &operation) continue;
    landing = {};
    effects.push_back(Revoke{{task.upstream, index}});
  }
  const PeerId next = task.downstream;
  Link* const downstream = find_link(next);
  if (downstream != nullptr && operation.queued) downstream->queue.remove(operation);
  for (uint32_t index = 0; downstream != nullptr && index < downstream->lanes.size(); ++index) {
    InFlightChunk& sending = downstream->lanes[index].sending;
    if (sending.operation != &operation) continue;
    sending = {};
    effects.push_back(Withdraw{{next, index}});
  }
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
