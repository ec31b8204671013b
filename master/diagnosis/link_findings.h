// link_findings: the findings about the links between the members of a group, and about its plan. A
// link that is slow, and a plan that is not the fastest, are notes: nothing stands still. A pure
// function.
#pragma once

#include <vector>

#include "master/diagnosis/finding.h"

namespace pccl::master {

class Group;

std::vector<Finding> link_findings(const Group& group);

}  // namespace pccl::master
