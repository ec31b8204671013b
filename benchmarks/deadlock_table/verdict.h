// Verdict: the result of a round of the deadlock simulator.
#pragma once

namespace pccl::deadlock_table {

struct Verdict {
  // The check of the paper (Pan et al., EuroSys '25, section 2.4) has found a deadlock. It also
  // finds chains of waits that end by themselves.
  bool published = false;
  // GPUs wait for each other in a cycle (master/group/wait_cycle.h).
  bool exact = false;
};

}  // namespace pccl::deadlock_table
