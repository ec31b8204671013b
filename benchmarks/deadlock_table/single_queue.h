// SingleQueue: each GPU executes its collectives one at a time, in the order of its calls. A
// collective completes when it is at the head of the queues of all its GPUs, and leaves them. It is
// a deadlock if not all of them complete.
// The GPUs call group after group. Most rounds have no disorder: these are not simulated.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/deadlock_table/disorder.h"
#include "benchmarks/deadlock_table/verdict.h"
#include "benchmarks/deadlock_table/world.h"

namespace pccl::deadlock_table {

class SingleQueue {
 public:
  SingleQueue(const World& world, double disorder, Random& random);

  Verdict round();

 private:
  void draw_orders();
  void complete_all();
  void serve(uint32_t gpu);
  bool waits_in_a_cycle() const;

  const World& world_;
  Chance disorder_;
  std::vector<Calls> planned_;
  uint64_t trials_ = 0;  // the calls of a round that can be skipped

  std::vector<Calls> queues_;      // by GPU
  std::vector<size_t> heads_;      // by GPU, in its queue
  std::vector<uint32_t> waiting_;  // by collective: the members at whose head it is, as bits
  std::vector<uint32_t> moved_;    // the GPUs with a new head
};

}  // namespace pccl::deadlock_table
