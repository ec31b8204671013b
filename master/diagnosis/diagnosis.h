// diagnosis: the reasons why a run stands still, each with the guilty peer and the next step, as a
// pure function of the facts about the run. The sentences about waits and obstacles are those that
// the peers and the log get (group/wait_texts.h), so that all surfaces have one wording. A finding
// about a wait stands from the time when the wait is announced to the peers that wait.
#pragma once

#include <vector>

#include "master/diagnosis/finding.h"

namespace pccl::master {

struct RunView;

// The errors first, then the warnings, then the notes. Never empty: if all is well, the first one
// is nothing_wrong, which notes may follow.
std::vector<Finding> diagnose(const RunView& view);

}  // namespace pccl::master
