// peer_findings: the findings about the peers of a group: those that are not admitted, those that
// are silent or away, those that drift, and too few of them. A pure function.
#pragma once

#include <vector>

#include "master/diagnosis/finding.h"

namespace pccl::master {

class Group;

std::vector<Finding> peer_findings(const Group& group);

}  // namespace pccl::master
