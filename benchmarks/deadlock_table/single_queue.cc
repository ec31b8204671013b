#include "benchmarks/deadlock_table/single_queue.h"

#include <utility>

#include "csrc/base/assert.h"
#include "master/group/wait_cycle.h"

namespace pccl::deadlock_table {

SingleQueue::SingleQueue(const World& world, double disorder, Random& random)
    : world_(world), disorder_(disorder, random), queues_(world.gpus) {
  for (uint32_t gpu = 0; gpu < world.gpus; ++gpu) {
    planned_.push_back(world.concatenated(gpu));
    if (!planned_.back().empty()) trials_ += planned_.back().size() - 1;
  }
}

Verdict SingleQueue::round() {
  if (!disorder_.succeeds_within(trials_)) return {};
  draw_orders();
  complete_all();
  bool all = true;
  for (uint32_t gpu = 0; gpu < world_.gpus; ++gpu) all &= heads_[gpu] == queues_[gpu].size();
  const bool cycle = waits_in_a_cycle();
  PCCL_ASSERT(all != cycle);
  return {cycle, cycle};
}

void SingleQueue::draw_orders() {
  for (uint32_t gpu = 0; gpu < world_.gpus; ++gpu) {
    queues_[gpu].clear();
    for (CallOrder order(planned_[gpu]); order.left() > 0;)
      queues_[gpu].push_back(order.take(disorder_));
  }
}

void SingleQueue::complete_all() {
  heads_.assign(world_.gpus, 0);
  waiting_.assign(world_.collectives, 0);
  for (uint32_t gpu = 0; gpu < world_.gpus; ++gpu) moved_.push_back(gpu);
  while (!moved_.empty()) {
    const uint32_t gpu = moved_.back();
    moved_.pop_back();
    serve(gpu);
  }
}

void SingleQueue::serve(uint32_t gpu) {
  if (heads_[gpu] == queues_[gpu].size()) return;
  const Call call = queues_[gpu][heads_[gpu]];
  const Group& group = world_.groups[call.group];
  waiting_[call.collective] |= 1u << call.member;
  if (waiting_[call.collective] != group.everybody) return;
  for (const uint32_t member : group.gpus) {
    ++heads_[member];
    moved_.push_back(member);
  }
}

// A GPU waits for the members at whose head its own head is not.
bool SingleQueue::waits_in_a_cycle() const {
  std::vector<master::BlockedRank> blocked;
  for (uint32_t gpu = 0; gpu < world_.gpus; ++gpu) {
    if (heads_[gpu] == queues_[gpu].size()) continue;
    const Call call = queues_[gpu][heads_[gpu]];
    const Group& group = world_.groups[call.group];
    master::BlockedRank::Wait wait{OpKey{TagId{call.group}, call.collective - group.first}, {}};
    for (uint32_t member = 0; member < group.gpus.size(); ++member) {
      if (!(waiting_[call.collective] >> member & 1)) wait.missing.push_back(group.gpus[member]);
    }
    blocked.push_back({gpu, {std::move(wait)}});
  }
  return !master::wait_cycles(blocked).empty();
}

}  // namespace pccl::deadlock_table
