// metrics: the numbers of all runs of a master in the text format 0.0.4 of Prometheus, for
// `/metrics`. docs/watching.md has the table of names; none is ever renamed. A pure function.
// Labels are `run`, `group`, `peer` and `to` (names of peers), and fixed words. A name can stand
// for several peers of a group: their numbers are added. No label has a tag, an operation, an
// epoch, an id of a peer or an address, so a run does not have more series as it grows older.
// Bounds: the names of kPeersMeasured peers and kGroupsMeasured groups of each run. No group is
// added after kMetricsBytesMax. pccl_series_dropped_total counts what is left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "master/diagnosis/standing_still.h"
#include "master/operator/metrics_writer.h"

namespace pccl::master {

struct RunView;

inline constexpr size_t kPeersMeasured = 256;
inline constexpr size_t kGroupsMeasured = 64;
inline constexpr size_t kMetricsBytesMax = 16u << 20;

// The state of a run between two scrapes.
struct Scraped {
  StandingStill standing;
  uint64_t dropped = 0;  // names of peers and groups that were left out, in all scrapes
};
struct MeasuredRun {
  const RunView& view;
  Scraped& scraped;
};
struct JournalCounts {
  uint64_t writes = 0;
  bool failed = false;
};

std::vector<MetricFamily> metric_families();
// `journal`: none if the master forgets. REQUIRES: `now` is not before the last step of each run.
std::string metrics_text(const std::vector<MeasuredRun>& runs,
                         const std::optional<JournalCounts>& journal, Instant now);

}  // namespace pccl::master
