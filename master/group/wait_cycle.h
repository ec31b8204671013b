// wait_cycle: finds ranks of one group that wait for each other in a cycle. A rank is stuck if each
// call in which it waits lacks the call of another stuck rank. None of the stuck ranks can continue
// by itself, so such a cycle is a mistake in the program. Pure values and functions;
// cycle_watch.h gathers the facts, and cycle_text.h makes a sentence of a cycle.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/protocol/joint_kind.h"

namespace pccl::master {

using WaitedCall = std::variant<OpKey, protocol::JointKind>;

// A rank whose application blocks. Waits that end by themselves are left out by the caller: waits
// with a limit, and receives from any source.
struct BlockedRank {
  struct Wait {
    WaitedCall call;
    std::vector<uint32_t> missing;  // the ranks that have not made the call; empty: it is under way
  };
  uint32_t rank = 0;
  // One for each thread that waits. The rank continues as soon as one of these calls ends.
  std::vector<Wait> waits;
};

// `rank` waits in `call`, which `awaited` has not made.
struct WaitLink {
  uint32_t rank = 0;
  WaitedCall call;
  uint32_t awaited = 0;
  bool operator==(const WaitLink&) const = default;
};
// In the order of the waits: each rank waits for the next one, and the last one for the first.
using WaitCycle = std::vector<WaitLink>;

// Cycles without a common rank, the shortest first. Each begins with its lowest rank. The order of
// `blocked` does not matter. REQUIRES: each rank is there once.
std::vector<WaitCycle> wait_cycles(const std::vector<BlockedRank>& blocked);

}  // namespace pccl::master
