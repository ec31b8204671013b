#include "csrc/ring/op_table.h"

#include <utility>

#include "csrc/base/assert.h"

namespace pccl::ring {

Operation::Operation(Task posted, uint64_t age)
    : task(std::move(posted)),
      schedule(task.shape),
      serial(age),
      sent(schedule.first_send()),
      received(schedule.first_receive()) {
  PCCL_ASSERT(sent.at_end || task.downstream);
  PCCL_ASSERT(received.at_end || task.upstream);
}

bool Operation::can_send() const {
  return !sent.at_end && !sending && !downstream_lost && sent.step < allowed &&
         schedule.may_send(sent, received);
}

bool Operation::owes_credit() const {
  return !received.at_end && !upstream_lost && schedule.credit(sent) > granted;
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

}  // namespace pccl::ring
