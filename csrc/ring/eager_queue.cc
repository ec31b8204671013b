#include "csrc/ring/eager_queue.h"

#include <utility>

#include "csrc/base/assert.h"

namespace pccl::ring {

void EagerQueue::begin_epoch(Effects& effects) {
  drop_all(effects);
  budget_ = {};
}

void EagerQueue::allow(Operation& operation) {
  const Schedule::Eager head = operation.schedule.head(budget_.room());
  if (head.steps == 0) return;
  budget_.leaves(operation.task.op, head.cost);
  operation.allowed = head.steps;
}

std::string EagerQueue::judge(const protocol::FrameHeader& header, InFlightChunk& landing) {
  const UnexpectedChunks::Kept* const kept = chunks_.find(header.op);
  if (kept != nullptr && kept->voided) return {};
  if (kept != nullptr && kept->digest != header.digest)
    return "chunks of one operation with two digests";
  const auto index = chunks_.arriving(header);
  if (!index) return "more chunks that came too early than there is room for";
  landing.unexpected = {header.op, *index};
  return {};
}

bool EagerQueue::arrived(const UnexpectedId& chunk, bool valid, Operation* whole,
                         Effects& effects) {
  UnexpectedChunks::Kept& kept = *chunks_.find(chunk.op);
  Operation* const operation = whole == nullptr ? nullptr : whole->from(link_.peer);
  if (!valid) {
    kept.voided = true;
    if (operation != nullptr) operation->voided = true;
    chunks_.take(chunk.op, chunk.index);
    effects.push_back(DropUnexpected{link_.peer, chunk});
    return false;
  }
  kept.chunks.at(chunk.index).here = true;
  return operation != nullptr && !link_.failed;
}

std::vector<uint32_t> EagerQueue::posted(Operation& whole, Effects& effects) {
  const OpKey op = whole.task.op;
  UnexpectedChunks::Kept* const kept = chunks_.find(op);
  if (kept == nullptr) return {};
  Operation* const operation = whole.from(link_.peer);
  if (operation == nullptr || kept->digest != operation->task.digest) {
    drop(op, effects);
    return {};
  }
  chunks_.requested(op);
  operation->voided |= kept->voided;
  std::vector<uint32_t> here;
  for (const auto& [index, chunk] : kept->chunks) {
    if (chunk.here) here.push_back(index);
  }
  return here;
}

std::optional<uint64_t> EagerQueue::take(Operation& operation, uint32_t index, Effects& effects) {
  const UnexpectedId unexpected{operation.task.op, index};
  uint64_t id = 0;
  const protocol::FrameHeader header = chunks_.find(unexpected.op)->chunks.at(index).header;
  std::string why = operation.judge(header, id);
  chunks_.take(unexpected.op, index);
  if (!why.empty() || operation.voided) {
    effects.push_back(DropUnexpected{link_.peer, unexpected});
    if (!why.empty()) link_.fail(std::move(why), effects);
    return std::nullopt;
  }
  const Chunk chunk = operation.schedule.chunk_received(id);
  operation.progress.arriving(id);
  operation.note_absent({header.value});
  effects.push_back(TakeUnexpected{link_.peer, unexpected, operation.task.handle, chunk,
                                   operation.schedule.action(chunk), operation.absent().count()});
  return id;
}

void EagerQueue::drop(OpKey op, Effects& effects) {
  UnexpectedChunks::Kept* const kept = chunks_.find(op);
  if (kept == nullptr) return;
  link_.revoke(
      [op](const InFlightChunk& landing) {
        return landing.unexpected && landing.unexpected->op == op &&
               landing.unexpected->index != kUnexpectedContribution;
      },
      effects);
  for (const auto& [index, chunk] : kept->chunks)
    effects.push_back(DropUnexpected{link_.peer, {op, index}});
  chunks_.drop(op);
}

void EagerQueue::drop_all(Effects& effects) {
  while (!chunks_.empty()) drop(chunks_.first(), effects);
}

size_t EagerQueue::kept() const {
  size_t count = 0;
  for (const auto& [op, kept] : chunks_.all()) count += kept.chunks.size();
  return count;
}

// If the link has failed, a chunk that began to arrive may stay incomplete until LinkDown.
long EagerQueue::check(const OpTable& operations) const {
  budget_.check();
  for (const auto& [op, bytes] : budget_.unasked()) {
    PCCL_ASSERT(operations.knows(op));  // it was posted in this epoch
  }
  chunks_.check();
  long landing = 0;
  for (const auto& [op, kept] : chunks_.all()) {
    const Operation* const operation = operations.find(op);
    PCCL_ASSERT(!operations.knows(op) || operation != nullptr);
    const Operation* const receiving = operation == nullptr ? nullptr : operation->from(link_.peer);
    PCCL_ASSERT(operation == nullptr ||
                (receiving != nullptr && receiving->task.digest == kept.digest));
    for (const auto& [index, chunk] : kept.chunks) {
      PCCL_ASSERT(operation == nullptr || !chunk.counted);
      PCCL_ASSERT(operation == nullptr || !chunk.here || link_.failed);
      if (chunk.here) continue;
      const long lanes = link_.landing_lanes({op, index});
      PCCL_ASSERT(lanes == 1 || (lanes == 0 && link_.failed));
      landing += lanes;
    }
  }
  return landing;
}

}  // namespace pccl::ring
