// course: the last hour of a peer group as JSON, for charts. A snapshot (snapshot.h) that was asked
// for with its history has these fields in each group. A pure function.
//
//   "history":{"step_s":5.0, "operations":[0, 12, ...], "bytes":[...], "losses":[...],
//              "joins":[...]}
//      Statistics::kPoints numbers each, the newest last: the present step is not over.
//   "scalars_history":{"loss":[[12.5, 2.31], ...], ...}
//      The numbers that the programs have reported: [seconds ago, value], the newest last. Two
//      reports within two seconds give one point, with the mean. Members report only while somebody
//      watches, so there can be gaps.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "csrc/base/clock.h"

namespace pccl::master {

class PresentEpoch;

void add_course(nlohmann::json& group, const PresentEpoch& present, Instant now);

}  // namespace pccl::master
