// Driver: one simulated run from a seed: how many peers, which faults when, and how long until all
// must be well again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/world.h"

namespace pccl::sim {

struct RunOptions {
  uint64_t seed = 1;
  Bug plant = Bug::kNone;
  uint64_t bursts = 1;                           // of faults; after each of them all must get on
  uint64_t faults_max = 12;                      // in a burst
  Duration pause_max = std::chrono::seconds(2);  // from one to the next
  // Instead of faults from the seed: a world of `peers` without any, one of which is killed after
  // `kill_at_step`.
  int64_t kill_at_step = -1;
  Coverage* coverage = nullptr;  // may be null: then no fault waits for a certain step
  std::function<void(const std::string&)> transcript;  // may be empty
};

struct RunReport {
  std::vector<std::string> violations;
  uint64_t steps = 0;                      // things that happened
  std::map<std::string, uint64_t> faults;  // how many, by kind
  uint64_t outcomes = 0;                   // different things that were compared between peers
  uint64_t mistakes = 0;                   // of newcomers, after which the others were looked at
  uint64_t turns = 0;                      // batches that ended well, over all peers
  Duration virtual_time{0};
};

RunReport run_seed(const RunOptions& options);

}  // namespace pccl::sim
