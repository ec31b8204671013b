// wait_findings: the findings about calls in which members of a group wait for others
// (group/awaited_calls.h), from the time when the wait is announced to those members, and about
// members that wait for each other (group/cycle_watch.h). Pure functions.
#pragma once

#include <vector>

#include "master/diagnosis/finding.h"

namespace pccl::master {

class Group;
class Groups;

std::vector<Finding> wait_findings(const Groups& groups, const Group& group);

}  // namespace pccl::master
