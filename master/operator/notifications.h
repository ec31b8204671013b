// Notifications: decides which findings are reported to the operator of a master, and for which the
// operator's command runs. It is pure: findings and time come in, reports come out. The Notifier
// (shell/notifier.h) logs the reports, and runs the command.
// A finding is the same as before if it has the same run, code and guilty peers. Notes are ignored.
// Invariants:
// 1. A finding is reported once it has stood for `after`, and again once it is gone.
// 2. One command runs at a time, and for each code at most one begins in kPause. A finding that
//    ends before the command has run for it needs none. A finding that comes back before the
//    command has run for its end needs none either.
// 3. At most kStandingMax findings are watched. Further ones wait until one of them is gone.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/base/clock.h"
#include "master/diagnosis/finding.h"

namespace pccl::master {

struct WallClock;

using FindingsByRun = std::map<std::string, std::vector<Finding>>;

class Notifications {
 public:
  static constexpr size_t kStandingMax = 256;
  static constexpr Duration kPause = std::chrono::minutes(1);

  struct Report {
    std::string run;
    Finding finding;  // as it was last
    bool ends = false;
    Instant since;  // when the finding was seen first
  };

  explicit Notifications(Duration after) : after_(after) {}

  // The findings of all runs at `now`. Returns the reports that are due.
  std::vector<Report> look(const FindingsByRun& all, Instant now);
  // The report for which the command runs now, if it is time for one. REQUIRES: none runs.
  std::optional<Report> begin_command(Instant now);
  bool runs_command() const { return runs_command_; }
  void command_ended();
  void check() const;

 private:
  using Key = std::tuple<std::string, FindingCode, std::vector<std::string>>;
  struct Standing {
    Finding finding;
    Instant since;
    bool reported = false;
    bool told = false;  // the command has run for its beginning
    bool gone = false;  // the command is still to run for its end
    Instant due;        // from when on the command may run for it
  };
  using AllStanding = std::map<Key, Standing>;

  static bool wants_command(const Standing& one) { return one.told ? one.gone : one.reported; }
  bool may_run(FindingCode code, Instant now) const;

  const Duration after_;
  AllStanding standing_;
  std::map<FindingCode, Instant> last_command_;  // when the last one began
  bool runs_command_ = false;
};

// The standard input of the command: one JSON object.
//   {"schema":1, "event":"finding_begins", "run":"night", "code":"rank_has_not_called",
//    "severity":"error", "whom":["osaka (peer 1.3)"], "text":"...", "next":"...",
//    "since":TIME, "stood_s":60.2, "time":TIME}
// TIME: ISO 8601 in UTC. Fields are added in later versions, and never renamed or removed.
nlohmann::json to_json(const Notifications::Report& report, const WallClock& clock);

}  // namespace pccl::master
