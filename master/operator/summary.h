// summary: the memory of a master at its start, as lines for its operator. Pure.
#pragma once

#include <string>
#include <vector>

#include "csrc/protocol/version.h"
#include "master/runs/journal.h"

namespace pccl::master {

// A summary names at most this number of runs, and of groups of a run. It counts the rest.
inline constexpr size_t kRunsSummedUp = 20;
inline constexpr size_t kGroupsSummedUp = 4;

// The first line counts the runs. One line for each run follows: first the runs that continue, then
// the finished runs, both in the order of their names. `spoken`: a run with a version of the
// protocol outside this range has ended.
std::vector<std::string> summary(const Memory& memory, const protocol::VersionRange& spoken);

}  // namespace pccl::master
