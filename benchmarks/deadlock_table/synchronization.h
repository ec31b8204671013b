// Synchronization: each GPU executes any number of collectives at once, and at random it waits for
// all that it executes before it calls the next one. A collective is executed on a GPU from the
// call on, and completes when all its GPUs have called it.
// The GPUs take turns, in passes. A turn is a synchronization or a call. A GPU that waits (is
// suspended) has no turns. The GPUs call the first collective of all their groups, then the second,
// and so on.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/deadlock_table/disorder.h"
#include "benchmarks/deadlock_table/verdict.h"
#include "benchmarks/deadlock_table/world.h"

namespace pccl::deadlock_table {

class Synchronization {
 public:
  Synchronization(const World& world, double disorder, double synchronization, Random& random);

  Verdict round();

 private:
  struct Gpu {
    Calls planned;
    CallOrder order;
    Calls called;  // those that it executes, and some that have completed
    uint32_t executing = 0;
    bool suspended = false;
  };

  void begin();
  // Returns whether a GPU has a turn left.
  bool pass(Verdict& found);
  void call(Gpu& gpu);
  void synchronize(uint32_t number, Verdict& found);
  void set_suspended(uint32_t number, bool suspended);

  bool is_published_deadlock(uint32_t number);
  bool waits_for_suspended(uint32_t number);
  bool is_awaited_by_suspended(uint32_t number);
  bool waits_in_a_cycle();

  uint32_t lacks(const Call& call) const;  // the members that have not called it, as bits
  const Calls& executed(Gpu& gpu);

  const World& world_;
  Chance disorder_, synchronization_;
  std::vector<Gpu> gpus_;
  std::vector<uint32_t> called_by_;  // by collective, the members as bits
  std::vector<uint32_t> suspended_;  // by group, the members as bits
};

}  // namespace pccl::deadlock_table
