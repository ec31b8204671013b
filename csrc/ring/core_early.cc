// The part of RingCore for eager data and the unexpected-message queue (head_start.h). States of a
// chunk whose operation is not posted here yet:
//   arriving    LandEarly                                                    lands
//   lands       all of it has arrived                                        kept
//   kept        OpPosted: TakeEarly, as if it had arrived then               gone
//   either      OpEnded, posted with another digest, LinkDown: DropEarly     gone

#include <utility>

#include "csrc/base/assert.h"
#include "csrc/ring/core.h"

namespace pccl::ring {

// ---- Sending ----

// For an operation whose credit has not come.
void RingCore::start_ahead(Operation& operation, Link& downstream) {
  const Schedule::Head head = operation.schedule.head(downstream.head_start.room());
  if (head.steps == 0) return;
  downstream.head_start.leaves(operation.task.op, head.cost);
  operation.allowed = head.steps;
}

// ---- Receiving ----

std::string RingCore::judge_early(Link& link, const net::FrameHeader& header, Passage& landing) {
  const EarlyChunks::Kept* const kept = link.early_chunks.find(header.op);
  if (kept != nullptr && kept->voided) return {};
  if (kept != nullptr && kept->digest != header.digest)
    return "chunks of one operation with two digests";
  const auto index = link.early_chunks.arriving(header);
  if (!index) return "more chunks that came too early than there is room for";
  landing.early = {header.op, *index};
  return {};
}

void RingCore::early_arrived(LaneId lane, Link& link, EarlyId early, bool valid, Effects& effects) {
  EarlyChunks::Kept& kept = *link.early_chunks.find(early.op);
  Operation* const operation = operations_.find(early.op);
  if (!valid) {
    kept.voided = true;
    if (operation != nullptr) operation->voided = true;
    link.early_chunks.take(early.op, early.index);
    effects.push_back(DropEarly{lane.peer, early});
    return;
  }
  kept.chunks.at(early.index).here = true;
  if (operation != nullptr && !link.failed)
    take_early(lane.peer, link, *operation, early.index, effects);
}

void RingCore::take_all_early(Operation& operation, Effects& effects) {
  const OpKey op = operation.task.op;
  for (auto& [peer, link] : links_) {
    EarlyChunks::Kept* const kept = link.early_chunks.find(op);
    if (kept == nullptr) continue;
    const bool of_it = peer == operation.task.upstream && kept->digest == operation.task.digest;
    if (!of_it) {
      drop_early(peer, link, op, effects);
      continue;
    }
    link.early_chunks.asked(op);
    operation.voided |= kept->voided;
    std::vector<uint32_t> here;
    for (const auto& [index, chunk] : kept->chunks) {
      if (chunk.here) here.push_back(index);
    }
    for (const uint32_t index : here) {
      if (!link.failed) take_early(peer, link, operation, index, effects);
    }
  }
}

void RingCore::take_early(PeerId peer, Link& link, Operation& operation, uint32_t index,
                          Effects& effects) {
  const EarlyId early{operation.task.op, index};
  uint64_t id = 0;
  const net::FrameHeader& header = link.early_chunks.find(early.op)->chunks.at(index).header;
  std::string why = judge_unit(operation, header, id);
  link.early_chunks.take(early.op, index);
  if (!why.empty() || operation.voided) {
    effects.push_back(DropEarly{peer, early});
    if (!why.empty()) fail(peer, link, std::move(why), effects);
    return;
  }
  const Unit unit = operation.schedule.unit_received(id);
  operation.progress.arriving(id);
  effects.push_back(
      TakeEarly{peer, early, operation.task.handle, unit, operation.schedule.action(unit)});
  chunk_arrived(operation, id, effects);
}

void RingCore::drop_early(PeerId peer, Link& link, OpKey op, Effects& effects) {
  EarlyChunks::Kept* const kept = link.early_chunks.find(op);
  if (kept == nullptr) return;
  for (uint32_t index = 0; index < link.lanes.size(); ++index) {
    Passage& landing = link.lanes[index].landing;
    if (!landing.early || landing.early->op != op || landing.early->index == kEarlyCopy) continue;
    landing = {};
    effects.push_back(Revoke{{peer, index}});
  }
  for (const auto& [index, chunk] : kept->chunks) effects.push_back(DropEarly{peer, {op, index}});
  link.early_chunks.drop(op);
}

}  // namespace pccl::ring
