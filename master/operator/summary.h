// summary: the memory of a master at its start, as lines for its operator. Pure.
#pragma once

#include <string>
#include <vector>

#include "csrc/protocol/version.h"
#include "master/runs/journal.h"

namespace pccl::master {

// Runs, and groups of a run, beyond these numbers are counted and not named.
inline constexpr size_t kRunsSummedUp = 20;
inline constexpr size_t kGroupsSummedUp = 4;

// The first line counts the runs. One line for each run follows: first the runs that continue, then
// the finished ones, each in the order of their names. `spoken`: a run of another version of the
// protocol has ended.
std::vector<std::string> summary(const Memory& memory, const protocol::VersionRange& spoken);

}  // namespace pccl::master
