#include "csrc/ring/eager_queue.h"

#include <utility>

#include "csrc/base/assert.h"

namespace pccl::ring {

void EagerQueue::begin_epoch(Effects& effects) {
  drop_all(effects);
  budget_ = {};
}

void EagerQueue::allow(Operation& operation) {
  const OpKey op = operation.task.op;
  const UnexpectedMessages::Kept* const kept = messages_.find(op);
  if (kept != nullptr && kept->credit) {
    if (kept->credit->digest == operation.task.digest) operation.allowed = kept->credit->steps;
    return;
  }
  const bool posted = kept != nullptr;  // the other end has posted the operation
  const Schedule::Eager head =
      operation.schedule.head(posted ? UINT64_MAX : budget_.room(operation.is_one_shot()));
  if (head.steps == 0) return;
  if (!posted) budget_.leaves(op, head.cost);
  operation.allowed = head.steps;
}

std::string EagerQueue::judge(const protocol::FrameHeader& header, InFlightChunk& landing) {
  const UnexpectedMessages::Kept* const kept = messages_.find(header.op);
  if (kept != nullptr && kept->voided) return {};
  if (kept != nullptr && kept->begun > 0 && kept->digest != header.digest)
    return "chunks of one operation with two digests";
  const auto index = messages_.arriving(header);
  if (!index) return "more chunks that came too early than there is room for";
  landing.unexpected = {header.op, *index};
  return {};
}

bool EagerQueue::arrived(const UnexpectedId& chunk, bool valid, Operation* whole,
                         Effects& effects) {
  UnexpectedMessages::Kept& kept = *messages_.find(chunk.op);
  Operation* const operation = whole == nullptr ? nullptr : whole->from(link_.peer);
  if (!valid) {
    kept.voided = true;
    if (operation != nullptr) operation->voided = true;
    messages_.take(chunk.op, chunk.index);
    effects.push_back(DropUnexpected{link_.peer, chunk});
    return false;
  }
  kept.chunks.at(chunk.index).here = true;
  return operation != nullptr && !link_.failed;
}

std::vector<uint32_t> EagerQueue::posted(Operation& whole, Effects& effects) {
  const OpKey op = whole.task.op;
  UnexpectedMessages::Kept* const kept = messages_.find(op);
  if (kept == nullptr) return {};
  kept->credit.reset();
  if (kept->begun == 0) {
    messages_.drop(op);
    return {};
  }
  Operation* const operation = whole.from(link_.peer);
  if (operation == nullptr || kept->digest != operation->task.digest) {
    drop(op, effects);
    return {};
  }
  messages_.requested(op);
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
  const protocol::FrameHeader header = messages_.find(unexpected.op)->chunks.at(index).header;
  std::string why = operation.judge(header, id);
  messages_.take(unexpected.op, index);
  // The operation is posted here: no further chunk of it will be kept.
  if (messages_.find(unexpected.op)->chunks.empty()) messages_.drop(unexpected.op);
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

std::optional<uint64_t> EagerQueue::drop(OpKey op, Effects& effects) {
  UnexpectedMessages::Kept* const kept = messages_.find(op);
  if (kept == nullptr) return std::nullopt;
  const auto digest = kept->begun > 0 ? std::optional(kept->digest) : std::nullopt;
  link_.revoke(
      [op](const InFlightChunk& landing) {
        return landing.unexpected && landing.unexpected->op == op;
      },
      effects);
  for (const auto& [index, chunk] : kept->chunks)
    effects.push_back(DropUnexpected{link_.peer, {op, index}});
  messages_.drop(op);
  return digest;
}

void EagerQueue::drop_all(Effects& effects) {
  while (messages_.size() > 0) drop(messages_.first(), effects);
}

size_t EagerQueue::kept() const {
  size_t count = 0;
  for (const auto& [op, kept] : messages_.all()) count += kept.chunks.size();
  return count;
}

// If the link has failed, a chunk that began to arrive may stay incomplete until LinkDown.
long EagerQueue::check(const OpTable& operations) const {
  budget_.check();
  for (const auto& [op, bytes] : budget_.unasked()) {
    PCCL_ASSERT(operations.knows(op));  // it was posted in this epoch
  }
  messages_.check();
  long landing = 0;
  for (const auto& [op, kept] : messages_.all()) {
    const Operation* const operation = operations.find(op);
    PCCL_ASSERT(!operations.knows(op) || operation != nullptr);
    PCCL_ASSERT(operation == nullptr || !kept.credit);
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
