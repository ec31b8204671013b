// Driver: performs one simulated run from a seed. The seed decides how many peers there are and
// which faults happen when. After the faults, every peer must make progress again within a fixed
// time.
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
  uint64_t bursts = 1;                           // of faults; after each, all must progress
  uint64_t faults_max = 12;                      // most faults in a burst
  Duration pause_max = std::chrono::seconds(2);  // longest time between two faults
  // If not negative, it replaces the faults from the seed: three peers run without faults, and one
  // of them is killed after `kill_at_step` steps.
  int64_t kill_at_step = -1;
  bool devices = false;  // tensors are on devices in each run, and not only in every second one
  // One peer of the run lies to the master (insider.h). kAlone: the only faults are restarts of the
  // master. kAmongFaults: the usual faults happen, too.
  enum class Insider : uint8_t { kNone, kAlone, kAmongFaults };
  Insider insider = Insider::kNone;
  bool reconfigures = false;     // the application decides who is in its group (reconfigures.h)
  Coverage* coverage = nullptr;  // may be null: then no fault waits for a certain transition
  std::function<void(const std::string&)> transcript;  // may be empty
};

struct RunReport {
  std::vector<std::string> violations;
  uint64_t steps = 0;                      // events that were run
  std::map<std::string, uint64_t> faults;  // number of faults, by kind
  uint64_t outcomes = 0;                   // different things that were compared between peers
  uint64_t mistakes = 0;                   // newcomers' mistakes whose effect was checked
  uint64_t late = 0;                       // late peers whose effect was checked
  uint64_t reconfigures = 0;               // whose outcomes were compared
  uint64_t turns = 0;                      // batches that ended well, over all peers
  Duration virtual_time{0};
};

// If an assertion fails during the run, the arguments that repeat it and the virtual time are
// printed.
RunReport run_seed(const RunOptions& options);

// The arguments with which pccl-sim repeats this run: "--seed 7 --bursts 2 --faults 150 --pause 1".
std::string repeat_text(const RunOptions& options);

}  // namespace pccl::sim
