// The part of RingCore for eager data and the unexpected-message queue (eager.h). States of a
// chunk whose operation is not posted here yet:
//   arriving       its header is here        LandUnexpected                            landing
//   landing        all bytes are here        -                                         kept
//   kept           OpPosted                  TakeUnexpected, as if it arrived now      gone
//   both           OpEnded, LinkDown, or     DropUnexpected                            gone
//                  another digest at the post

#include <utility>

#include "csrc/base/assert.h"
#include "csrc/ring/core.h"

namespace pccl::ring {

// ---- Sending ----

// For an operation whose credit has not come.
void RingCore::send_eagerly(Operation& operation, Link& downstream) {
  const Schedule::Eager head = operation.schedule.head(downstream.eager_budget.room());
  if (head.steps == 0) return;
  downstream.eager_budget.leaves(operation.task.op, head.cost);
  operation.allowed = head.steps;
}

// ---- Receiving ----

std::string RingCore::judge_unexpected(Link& link, const protocol::FrameHeader& header,
                                       InFlightChunk& landing) {
  const UnexpectedChunks::Kept* const kept = link.unexpected_chunks.find(header.op);
  if (kept != nullptr && kept->voided) return {};
  if (kept != nullptr && kept->digest != header.digest)
    return "chunks of one operation with two digests";
  const auto index = link.unexpected_chunks.arriving(header);
  if (!index) return "more chunks that came too early than there is room for";
  landing.unexpected = {header.op, *index};
  return {};
}

void RingCore::unexpected_arrived(LaneId lane, Link& link, UnexpectedId unexpected, bool valid,
                                  Effects& effects) {
  UnexpectedChunks::Kept& kept = *link.unexpected_chunks.find(unexpected.op);
  Operation* const whole = operations_.find(unexpected.op);
  Operation* const operation = whole == nullptr ? nullptr : whole->from(lane.peer);
  if (!valid) {
    kept.voided = true;
    if (operation != nullptr) operation->voided = true;
    link.unexpected_chunks.take(unexpected.op, unexpected.index);
    effects.push_back(DropUnexpected{lane.peer, unexpected});
    return;
  }
  kept.chunks.at(unexpected.index).here = true;
  if (operation != nullptr && !link.failed)
    take_unexpected(lane.peer, link, *operation, unexpected.index, effects);
}

void RingCore::take_all_unexpected(Operation& whole, Effects& effects) {
  const OpKey op = whole.task.op;
  for (auto& [peer, link] : links_) {
    UnexpectedChunks::Kept* const kept = link.unexpected_chunks.find(op);
    if (kept == nullptr) continue;
    Operation* const receiving = whole.from(peer);
    if (receiving == nullptr || kept->digest != receiving->task.digest) {
      drop_unexpected(peer, link, op, effects);
      continue;
    }
    Operation& operation = *receiving;
    link.unexpected_chunks.requested(op);
    operation.voided |= kept->voided;
    std::vector<uint32_t> here;
    for (const auto& [index, chunk] : kept->chunks) {
      if (chunk.here) here.push_back(index);
    }
    for (const uint32_t index : here) {
      if (!link.failed) take_unexpected(peer, link, operation, index, effects);
    }
  }
}

void RingCore::take_unexpected(PeerId peer, Link& link, Operation& operation, uint32_t index,
                               Effects& effects) {
  const UnexpectedId unexpected{operation.task.op, index};
  uint64_t id = 0;
  const protocol::FrameHeader& header =
      link.unexpected_chunks.find(unexpected.op)->chunks.at(index).header;
  std::string why = judge_in_flight(operation, header, id);
  const protocol::AbsentRanks absent{header.value};
  link.unexpected_chunks.take(unexpected.op, index);
  if (!why.empty() || operation.voided) {
    effects.push_back(DropUnexpected{peer, unexpected});
    if (!why.empty()) fail(peer, link, std::move(why), effects);
    return;
  }
  const Chunk chunk = operation.schedule.chunk_received(id);
  operation.progress.arriving(id);
  operation.note_absent(absent);
  effects.push_back(TakeUnexpected{peer, unexpected, operation.task.handle, chunk,
                                   operation.schedule.action(chunk), operation.absent().count()});
  chunk_arrived(operation, id, effects);
}

void RingCore::drop_unexpected(PeerId peer, Link& link, OpKey op, Effects& effects) {
  UnexpectedChunks::Kept* const kept = link.unexpected_chunks.find(op);
  if (kept == nullptr) return;
  for (uint32_t index = 0; index < link.lanes.size(); ++index) {
    InFlightChunk& landing = link.lanes[index].landing;
    if (!landing.unexpected || landing.unexpected->op != op ||
        landing.unexpected->index == kUnexpectedContribution)
      continue;
    landing = {};
    effects.push_back(Revoke{{peer, index}});
  }
  for (const auto& [index, chunk] : kept->chunks)
    effects.push_back(DropUnexpected{peer, {op, index}});
  link.unexpected_chunks.drop(op);
}

}  // namespace pccl::ring
