#include "csrc/ring/op_table.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"

namespace pccl::ring {
namespace {

std::string text(const protocol::FrameHeader& chunk) {
  return "chunk of (tag " + std::to_string(chunk.op.tag.value) + ", #" +
         std::to_string(chunk.op.sequence) + "), round " + std::to_string(chunk.round) +
         ", block " + std::to_string(chunk.block) + ", slice " + std::to_string(chunk.slice) +
         ", " + std::to_string(chunk.length) + " bytes, ";
}

}  // namespace

Operation::Operation(Task posted, uint64_t age)
    : task(std::move(posted)), schedule(task.shape), progress(schedule), serial(age) {
  if (schedule.owns() && !is_leg() && schedule.slices() > 0)
    owner = Owner(schedule.slices(), task.shape.world - 1, schedule.holds_results());
  schedule.check();  // it never changes
  PCCL_ASSERT(!schedule.sends() || task.downstream);
  PCCL_ASSERT(!schedule.receives() || task.upstream);
}

protocol::FrameHeader Operation::header(protocol::FrameType type) const {
  protocol::FrameHeader header;
  header.type = type;
  header.epoch = task.epoch;
  header.op = task.op;
  header.digest = task.digest;
  return header;
}

std::string Operation::judge(const protocol::FrameHeader& chunk, uint64_t& id) const {
  const auto known = schedule.find(chunk.round, chunk.block, chunk.slice);
  if (!known) return text(chunk) + "is none of it";
  const Chunk expected = schedule.chunk_received(*known);
  if (chunk.length != expected.wire_bytes)
    return text(chunk) + "has " + std::to_string(expected.wire_bytes) + " bytes";
  if (expected.step >= granted) return text(chunk) + "came without credit";
  if (!progress.expects(*known)) return text(chunk) + "came twice";
  if (!may_be_absent({chunk.value})) return text(chunk) + "tells of absent ranks";
  id = *known;
  return {};
}

bool Operation::owes_credit() const {
  return !progress.received_until().at_end && !upstream_lost && credit() > granted;
}

uint64_t Operation::credit() const {
  if (is_leg()) return schedule.credit_of_owner(whole->owner.free());
  return schedule.credit(progress.sent_until(), progress.received_until());
}

bool Operation::finished() const {
  const auto done = [](const auto& part) { return part->progress.finished(); };
  return progress.finished() && std::all_of(parts.begin(), parts.end(), done);
}

// A slice is final when the results of all owners are here: this member's own result
// (Owner::combined), and the results that arrive on legs. Some legs bring only contributions to
// this member's own result. Those do not lower the minimum: combined() already waits for them.
uint64_t Operation::finished_elements() const {
  PCCL_ASSERT(!is_leg());
  if (!schedule.row().by_owners()) return schedule.finished(progress.received_until());
  uint64_t slices = owner.owns() ? owner.combined() : schedule.slices();
  for (const auto& leg : parts) {
    if (leg->schedule.receives())
      slices = std::min(slices, leg->schedule.slices_here(leg->progress.received_until()));
  }
  return schedule.elements_in(slices);
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
  known_.add(task.op);
  pulled_ += task.pulled ? 1 : 0;
  Operation& whole = at->second;
  if (whole.schedule.row().in_parts()) add_parts(whole);
  if (whole.schedule.row().in_legs()) add_legs(whole);
  return whole;
}

void OpTable::add_parts(Operation& whole) {
  const Task& task = whole.task;
  for (const Part& part : task.parts) {
    for (const bool sends : {true, false}) {
      const uint64_t bytes = sends ? part.to : part.from;
      if (bytes == 0 || part.peer == task.parts[task.shape.rank].peer) continue;
      Task one{.epoch = task.epoch,
               .op = task.op,
               .digest = sends ? part.digest_to : part.digest_from,
               .handle = sends ? part.handle_to : part.handle_from,
               .shape = shape_of_part(task.shape, bytes, sends),
               .priority = task.priority};
      (sends ? one.downstream : one.upstream) = part.peer;
      whole.parts.push_back(std::make_unique<Operation>(std::move(one), ++posted_));
      whole.parts.back()->whole = &whole;
    }
  }
}

void OpTable::add_legs(Operation& whole) {
  const Task& task = whole.task;
  const uint32_t own = task.shape.rank, world = task.shape.world;
  const bool one_shot = whole.is_one_shot();
  uint32_t contributions = 0;
  if (!one_shot && whole.schedule.slices() == 0) return;
  for (uint32_t distance = 1; distance < world; ++distance) {
    const uint32_t other = (own + distance) % world;
    const Part& part = task.parts[other];
    if (!one_shot && task.shape.shares[own] == 0 && task.shape.shares[other] == 0) continue;
    for (const bool sends : {true, false}) {
      const uint64_t bytes = sends ? part.to : part.from;
      PCCL_ASSERT(!one_shot || bytes <= protocol::kOneShotBytesMax);
      if (one_shot && bytes == 0) continue;
      contributions += sends ? 0 : 1;
      Task one{.epoch = task.epoch,
               .op = task.op,
               .digest = !one_shot ? task.digest
                         : sends   ? part.digest_to
                                   : part.digest_from,
               .handle = task.handle,
               .shape = shape_of_leg(task.shape, sends ? own : other, sends ? other : own, bytes),
               .priority = task.priority};
      (sends ? one.downstream : one.upstream) = part.peer;
      whole.parts.push_back(std::make_unique<Operation>(std::move(one), ++posted_));
      whole.parts.back()->whole = &whole;
    }
  }
  if (one_shot && contributions > 0) whole.owner = Owner(1, contributions, false);
}

Operation* OpTable::find(OpKey op) {
  const auto at = operations_.find(op);
  return at == operations_.end() ? nullptr : &at->second;
}

void OpTable::remove(OpKey op) {
  const auto at = operations_.find(op);
  PCCL_ASSERT(at != operations_.end());
  pulled_ -= at->second.task.pulled ? 1 : 0;
  operations_.erase(at);
}

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
  known_.check();
  size_t pulled = 0;
  for (const auto& [key, operation] : operations_) {
    PCCL_ASSERT(operation.task.op == key && knows(key));
    pulled += operation.task.pulled ? 1 : 0;
    operation.each([this](const Operation& one) {
      PCCL_ASSERT(one.serial >= 1 && one.serial <= posted_);
      one.check();
    });
  }
  PCCL_ASSERT(pulled == pulled_);
}

void Operation::check() const {
  progress.check();
  owner.check();
  PCCL_ASSERT(granted <= credit() && credit() <= schedule.step_count());
  PCCL_ASSERT(!queued || (task.downstream && !downstream_lost));
  PCCL_ASSERT(queued || !can_send());
  PCCL_ASSERT(announced_transferred == (whole == nullptr && finished()));
  for (const auto& part : parts) {  // (7)
    const bool contributes = part->schedule.receives() && part->task.shape.contributes();
    if (!contributes || owner.combined() == 0) continue;
    const auto last =
        part->schedule.find(0, task.shape.rank, static_cast<uint32_t>(owner.combined() - 1));
    PCCL_ASSERT(part->progress.is_here(*last));
  }
}

}  // namespace pccl::ring
