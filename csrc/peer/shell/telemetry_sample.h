// telemetry_sample: the numbers of this peer as one Telemetry (Reporter). A pure function.
#pragma once

#include <vector>

#include "csrc/peer/time_account.h"
#include "csrc/protocol/messages.h"
#include "csrc/ring/data_event.h"

namespace pccl::peer {

// `before`: the time at the sample before. `links`: the peers whose links are wanted. Links that
// are not up are left out.
protocol::Telemetry telemetry_sample(const TimeTotals& time, const TimeTotals& before,
                                     const ring::DataCounters& data,
                                     const std::vector<PeerId>& links,
                                     std::vector<protocol::Scalar> scalars);

}  // namespace pccl::peer
