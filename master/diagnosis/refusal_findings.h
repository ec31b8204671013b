// refusal_findings: the findings about peers and calls that the master has refused lately: in the
// last ten minutes, or until a sync_shared_state succeeds. A pure function of the record of the run
// (history.h).
#pragma once

#include <vector>

#include "csrc/base/clock.h"
#include "master/diagnosis/finding.h"

namespace pccl::master {

struct Context;

inline constexpr Duration kRefusalsShown = std::chrono::minutes(10);

std::vector<Finding> refusal_findings(const Context& context);

}  // namespace pccl::master
