#include "benchmarks/deadlock_table/synchronization.h"

#include <algorithm>
#include <utility>

#include "csrc/base/assert.h"
#include "master/group/wait_cycle.h"

namespace pccl::deadlock_table {

Synchronization::Synchronization(const World& world, double disorder, double synchronization,
                                 Random& random)
    : world_(world), disorder_(disorder, random), synchronization_(synchronization, random) {
  gpus_.reserve(world.gpus);  // an order points to the list of its GPU
  for (uint32_t number = 0; number < world.gpus; ++number) {
    gpus_.push_back({world.interleaved(number), CallOrder({}), {}});
    gpus_.back().order = CallOrder(gpus_.back().planned);
  }
}

Verdict Synchronization::round() {
  begin();
  Verdict found;
  while (!found.exact && pass(found)) {
  }
  return found;
}

void Synchronization::begin() {
  called_by_.assign(world_.collectives, 0);
  suspended_.assign(world_.groups.size(), 0);
  for (Gpu& gpu : gpus_) {
    gpu.order.begin_again();
    gpu.called.clear();
    gpu.executing = 0;
    gpu.suspended = false;
  }
}

bool Synchronization::pass(Verdict& found) {
  bool any_turn = false, all_done = true;
  for (uint32_t number = 0; number < gpus_.size() && !found.exact; ++number) {
    Gpu& gpu = gpus_[number];
    if (gpu.order.left() == 0) continue;
    all_done = false;
    if (gpu.suspended) continue;
    any_turn = true;
    if (synchronization_.succeeds()) {
      synchronize(number, found);
    } else {
      call(gpu);
    }
  }
  PCCL_ASSERT(any_turn || all_done);  // if all others were suspended, they would be in a cycle
  return !all_done;
}

void Synchronization::call(Gpu& gpu) {
  const Call call = gpu.order.take(disorder_);
  gpu.called.push_back(call);
  ++gpu.executing;
  called_by_[call.collective] |= 1u << call.member;
  if (lacks(call) != 0) return;
  for (const uint32_t member : world_.groups[call.group].gpus) {
    if (--gpus_[member].executing == 0 && gpus_[member].suspended) set_suspended(member, false);
  }
}

// Without a published deadlock there is no cycle: a cycle through this GPU has a suspended GPU
// before it and one after it. A cycle that does not go through it has been found earlier.
void Synchronization::synchronize(uint32_t number, Verdict& found) {
  if (gpus_[number].executing == 0) return;
  set_suspended(number, true);
  if (!is_published_deadlock(number)) return;
  found.published = true;
  found.exact = waits_in_a_cycle();
}

void Synchronization::set_suspended(uint32_t number, bool suspended) {
  gpus_[number].suspended = suspended;
  for (const Call& membership : world_.memberships[number])
    suspended_[membership.group] ^= 1u << membership.member;
}

bool Synchronization::is_published_deadlock(uint32_t number) {
  return waits_for_suspended(number) && is_awaited_by_suspended(number);
}

bool Synchronization::waits_for_suspended(uint32_t number) {
  const Calls& calls = executed(gpus_[number]);
  return std::any_of(calls.begin(), calls.end(), [this](const Call& call) {
    return (lacks(call) & suspended_[call.group]) != 0;
  });
}

bool Synchronization::is_awaited_by_suspended(uint32_t number) {
  for (const Call& membership : world_.memberships[number]) {
    for (const uint32_t other : world_.groups[membership.group].gpus) {
      if (other == number || !gpus_[other].suspended) continue;
      const Calls& calls = executed(gpus_[other]);
      const bool awaited = std::any_of(calls.begin(), calls.end(), [&](const Call& call) {
        return call.group == membership.group && (lacks(call) >> membership.member & 1) != 0;
      });
      if (awaited) return true;
    }
  }
  return false;
}

// A suspended GPU continues when all that it executes has completed, so it has one wait, in which
// all GPUs are missing that lack any of its calls.
bool Synchronization::waits_in_a_cycle() {
  std::vector<master::BlockedRank> blocked;
  for (uint32_t number = 0; number < gpus_.size(); ++number) {
    if (!gpus_[number].suspended) continue;
    const Calls& calls = executed(gpus_[number]);
    master::BlockedRank::Wait wait{OpKey{TagId{calls.front().group}, calls.front().collective}, {}};
    for (const Call& call : calls) {
      const std::vector<uint32_t>& gpus = world_.groups[call.group].gpus;
      for (uint32_t member = 0; member < gpus.size(); ++member) {
        if (lacks(call) >> member & 1) wait.missing.push_back(gpus[member]);
      }
    }
    blocked.push_back({number, {std::move(wait)}});
  }
  return !master::wait_cycles(blocked).empty();
}

uint32_t Synchronization::lacks(const Call& call) const {
  return world_.groups[call.group].everybody & ~called_by_[call.collective];
}

const Calls& Synchronization::executed(Gpu& gpu) {
  std::erase_if(gpu.called, [this](const Call& call) { return lacks(call) == 0; });
  PCCL_ASSERT(gpu.called.size() == gpu.executing);
  return gpu.called;
}

}  // namespace pccl::deadlock_table
