// The part of RingCore for the direct all-reduce. A slice of a block, at its owner:
//   contributions come      each lands in a slot of its sender
//   the last one is here    Combine; then its results may leave to all others, and the slots of the
//                           slice are free: that is new credit for all others
//   a result is held        its slot is free when it has left to all others; only then the credit

#include "csrc/base/assert.h"
#include "csrc/ring/core.h"

namespace pccl::ring {

// A chunk of a leg is here.
void RingCore::contributed(Operation& leg, const Chunk& chunk, Effects& effects) {
  Operation& whole = *leg.whole;
  if (leg.schedule.action(chunk) != Action::kGather) return;
  if (!whole.owner.arrived(chunk.slice)) return;
  const uint64_t index = uint64_t{chunk.slice} * whole.task.shape.world + whole.task.shape.rank;
  effects.push_back(
      Combine{whole.task.handle, whole.schedule.written(index), whole.absent().count()});
  for (const auto& part : whole.parts) {
    if (!part->schedule.sends()) {
      grant(*part, effects);
      continue;
    }
    part->progress.unlock(part->schedule.result_id(chunk.slice));
    enqueue(*part, effects);
  }
}

// A chunk of a leg has left.
void RingCore::result_left(Operation& leg, const Chunk& chunk, Effects& effects) {
  Operation& whole = *leg.whole;
  if (leg.schedule.action(chunk) != Action::kStore || !whole.owner.left(chunk.slice)) return;
  for (const auto& part : whole.parts) {
    if (!part->schedule.sends()) grant(*part, effects);
  }
}

}  // namespace pccl::ring
