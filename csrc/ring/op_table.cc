#include "csrc/ring/op_table.h"

#include <utility>

#include "csrc/base/assert.h"

namespace pccl::ring {

Operation::Operation(Task posted, uint64_t age)
    : task(std::move(posted)), schedule(task.shape), progress(schedule), serial(age) {
  if (schedule.is_one_shot() && schedule.slot_count() > 1)
    one_shot = OneShot(task.members, task.shape.rank);
  schedule.check();  // it never changes
  PCCL_ASSERT(!schedule.sends() || task.downstream);
  PCCL_ASSERT(!schedule.receives() || task.upstream);
}

bool Operation::owes_credit() const {
  return !progress.received_until().at_end && !upstream_lost && credit() > granted;
}

uint64_t Operation::credit() const {
  return schedule.credit(progress.sent_until(), progress.received_until());
}

Chunk Operation::contribution_of(uint64_t ring_index) const {
  Chunk chunk;
  chunk.block = static_cast<uint32_t>(ring_index);
  chunk.bytes = static_cast<uint32_t>(schedule.total_bytes());
  chunk.wire_bytes = memory::wire_bytes(chunk.encoding, chunk.bytes);
  return chunk;
}

Operation& OpTable::add(const Task& task) {
  const auto [at, added] = operations_.try_emplace(task.op, task, ++posted_);
  PCCL_ASSERT(added);
  return at->second;
}

Operation* OpTable::find(OpKey op) {
  const auto at = operations_.find(op);
  return at == operations_.end() ? nullptr : &at->second;
}

void OpTable::remove(OpKey op) { operations_.erase(op); }

const Operation* OpTable::find(OpKey op) const {
  const auto at = operations_.find(op);
  return at == operations_.end() ? nullptr : &at->second;
}

bool OpTable::holds(const Operation* operation) const {
  for (const auto& [key, held] : operations_) {
    if (&held == operation) return true;
  }
  return false;
}

void OpTable::check() const {
  for (const auto& [key, operation] : operations_) {
    PCCL_ASSERT(operation.task.op == key);
    PCCL_ASSERT(operation.serial >= 1 && operation.serial <= posted_);
    operation.check();
  }
}

void Operation::check() const {
  progress.check();
  one_shot.check();
  PCCL_ASSERT(granted <= credit() && credit() <= schedule.step_count());
  PCCL_ASSERT(!queued || (task.downstream && !downstream_lost));
  PCCL_ASSERT(queued || !can_send());
  PCCL_ASSERT(announced_transferred == (progress.finished() && one_shot.finished()));
  PCCL_ASSERT(combined == (one_shot.active() && one_shot.all_here()));
}

}  // namespace pccl::ring
