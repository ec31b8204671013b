// cycle_text: a sentence about a cycle of waits (wait_cycle.h), for errors, the log and notices. It
// names for each rank the call in which it waits, and the rank that has not made this call. Pure
// function of a GroupView.
#pragma once

#include <string>

#include "master/group/group_view.h"
#include "master/group/wait_cycle.h"

namespace pccl::master {

// "the ranks wait for each other: rank 0 (tokyo) waits in all_reduce(...) (a, #0), which rank 1
// (osaka) has not called; rank 1 ...". At most kRanksNamedMax ranks are named.
std::string cycle_text(const GroupView& view, const WaitCycle& cycle);

// What to do about a cycle.
inline constexpr const char* kCycleAdvice =
    "make the same calls in the same order on all ranks, or make all of these calls "
    "(async_op=True, isend) before the first wait()";

}  // namespace pccl::master
