// snapshot: the facts about one run and its diagnosis as JSON, for `pccl status` and for programs.
// A pure function of the view of the run.
//
//   {"schema":1, "run":"NAME", "master":{"version":"0.1.0", "incarnation":"692b5a3f"},
//    "time":TIME, "up_since":TIME, "up_s":7200.5, "settings":{"peer_timeout_s":10.0},
//    "findings":[{"code":"rank_has_not_called", "severity":"error", "whom":["c (peer 1.3)"],
//                 "text":"...", "next":"..."}], "findings_more":0,
//    "groups":[{
//      "group":0, "phase":"active", "epoch":"692b5a3f.2", "members":3, "min_peers":2, "founders":3,
//      "shared_state":{"revision":120, "hash":"00c0ffee00c0ffee"},     // null: none was agreed on
//      "rate":{"operations_per_s":12.5, "bytes_per_s":4.5e7, "over_s":60.0},  // null: none yet
//      "peers":[{"peer":"692b5a3f.1", "rank":0, "name":"a", "address":"10.0.0.7:48201",
//                "state":"member", "doing":"has been in all_reduce (#6) for 12 s",
//                "since":TIME, "since_s":12.0,
//                "telemetry":{                                 // null: it has not reported yet
//                  "at":TIME, "over_s":2.0, "computing":0.85, "waiting":0.1, "transferring":0.03,
//                  "joint":0.02, "saving":0.0, "failing":0.0, "waits_for":"b (peer 1.2)",
//                  "sent_per_s":1.2e7, "received_per_s":1.2e7, "bytes_sent":10, "bytes_received":9,
//                  "links":[{"peer":"692b5a3f.2", "bytes_sent":10, "bytes_received":9, "lanes":4,
//                            "lanes_used":2, "round_trip_s":0.031, "segments_again":0}],
//                  "scalars":{"step":120.0, "loss":2.31}}}],
//      "ring":[{"from":0, "to":1, "bytes_per_s":1.2e7, "round_trip_s":0.031}],
//      "calls":[{"call":"all_reduce(...) (#6) in epoch 692b5a3f.2", "since":TIME, "since_s":12.0,
//                "waiting":[0, 1], "missing":[2]}], "operations_open":1}], "groups_more":0,
//    "events":[{"at":TIME, "level":"warning", "text":"..."}]}
//
// "telemetry" comes only while somebody asks for snapshots, every two seconds. "computing" and the
// five shares after it are parts of "over_s", the time between its last two reports, or since the
// peer has joined. "waits_for" names the member that it has waited for longest in this time.
//
// With Detail::kHistory each group has "history" and "scalars_history", too (course.h).
//
// TIME: ISO 8601 in UTC, with milliseconds. "over_s" is the time that the rate is the mean of.
// "state": member, waiting (to be admitted), arriving (not registered yet), silent, or away (not
// connected). A peer that is no member has no rank: null. Unknown rates and round trips are null.
// "missing" has ranks of the same group only. "peer" and "epoch" are as in the log.
//
// Fields are added in later versions, and never renamed or removed. The size is bounded: all peers
// of kGroupsShown groups, kFindingsShown findings and kCallsShown calls of each group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "csrc/base/clock.h"

namespace pccl::master {

struct RunView;

inline constexpr int kSnapshotSchema = 1;
inline constexpr size_t kGroupsShown = 8;
inline constexpr size_t kFindingsShown = 20;
inline constexpr size_t kCallsShown = 20;

// One moment on two clocks.
struct WallClock {
  Instant now;
  int64_t unix_ms = 0;
};

enum class Detail : uint8_t { kPresent, kHistory };

// `since`: unix seconds, the beginning of the run.
nlohmann::json snapshot(const RunView& view, const WallClock& clock, int64_t since,
                        Detail detail = Detail::kPresent);

}  // namespace pccl::master
