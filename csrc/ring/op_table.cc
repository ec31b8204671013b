#include "csrc/ring/op_table.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::ring {

Operation::Operation(Task posted, uint64_t age)
    : task(std::move(posted)), schedule(task.shape), progress(schedule), serial(age) {
  if (schedule.is_one_shot()) {
    OneShot contributions(task.parts, task.shape.rank);
    if (!contributions.finished()) one_shot = std::move(contributions);
  }
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
  chunk.bytes = static_cast<uint32_t>(task.parts[ring_index].from);
  chunk.wire_bytes = memory::wire_bytes(chunk.encoding, chunk.bytes);
  return chunk;
}

const Part* Operation::part_of(PeerId peer) const {
  const auto ring_index = one_shot.ring_index_of(peer);
  return ring_index ? &task.parts[*ring_index] : nullptr;
}

bool Operation::finished() const {
  const auto done = [](const auto& part) { return part->progress.finished(); };
  return progress.finished() && one_shot.finished() &&
         std::all_of(parts.begin(), parts.end(), done);
}

Operation* Operation::from(PeerId peer) {
  if (task.upstream == peer) return this;
  for (const auto& part : parts) {
    if (part->task.upstream == peer) return part.get();
  }
  return nullptr;
}

Operation* Operation::to(PeerId peer) {
  if (task.downstream == peer) return this;
  for (const auto& part : parts) {
    if (part->task.downstream == peer) return part.get();
  }
  return nullptr;
}

Operation& OpTable::add(const Task& task) {
  const auto [at, added] = operations_.try_emplace(task.op, task, ++posted_);
  PCCL_ASSERT(added);
  Operation& whole = at->second;
  if (row_of(task.shape.pattern).travel != Travel::kParts) return whole;
  for (const Part& part : task.parts) {
    for (const bool sends : {true, false}) {
      const uint64_t bytes = sends ? part.to : part.from;
      if (bytes == 0 || part.peer == task.parts[task.shape.rank].peer) continue;
      Task one{.epoch = task.epoch,
               .op = task.op,
               .digest = sends ? part.digest_to : part.digest_from,
               .handle = sends ? part.handle_to : part.handle_from,
               .shape = shape_of_part(task.shape, bytes, sends)};
      (sends ? one.downstream : one.upstream) = part.peer;
      whole.parts.push_back(std::make_unique<Operation>(std::move(one), ++posted_));
      whole.parts.back()->whole = &whole;
    }
  }
  return whole;
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
  bool found = false;
  each([&](const Operation& held) { found |= &held == operation; });
  return found;
}

void OpTable::check() const {
  for (const auto& [key, operation] : operations_) {
    PCCL_ASSERT(operation.task.op == key);
    operation.each([this](const Operation& one) {
      PCCL_ASSERT(one.serial >= 1 && one.serial <= posted_);
      one.check();
    });
  }
}

void Operation::check() const {
  progress.check();
  one_shot.check();
  PCCL_ASSERT(granted <= credit() && credit() <= schedule.step_count());
  PCCL_ASSERT(!queued || (task.downstream && !downstream_lost));
  PCCL_ASSERT(queued || !can_send());
  PCCL_ASSERT(announced_transferred == (whole == nullptr && finished()));
  PCCL_ASSERT(combined == (one_shot.active() && one_shot.all_here()));
}

}  // namespace pccl::ring
