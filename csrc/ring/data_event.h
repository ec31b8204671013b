// DataEvent: an event that the data plane reports to the control plane. DataCounters: the counters
// of the data plane, for run_info. Plain values.
#pragma once

#include <variant>
#include <vector>

#include "csrc/link/driver_events.h"
#include "csrc/ring/counters.h"
#include "csrc/ring/events.h"

namespace pccl::ring {

using DataEvent =
    std::variant<link::Listening, link::LinkChanged, link::RateMeasured, OpTransferred,
                 OpProgressed, OpAgreed, OpDrained, OpFailed, Requested>;

struct DataCounters {
  EngineCounters engine;
  std::vector<link::LinkCounters> links;
};

}  // namespace pccl::ring
