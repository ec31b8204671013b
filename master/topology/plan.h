// Plan: the way in which large all-reduces travel in a group. planner.h finds it. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/protocol/plan.h"

namespace pccl::master::topology {

struct Plan {
  std::vector<uint32_t> ring;      // begins with member 0
  std::vector<uint16_t> shares;    // empty: every all-reduce goes around the ring
  protocol::DirectSizes direct{};  // the sizes that use the shares
  bool operator==(const Plan&) const = default;
};

struct PlanQuestion;  // planner.h

}  // namespace pccl::master::topology
