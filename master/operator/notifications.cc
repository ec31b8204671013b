#include "master/operator/notifications.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/log_event.h"
#include "master/operator/snapshot.h"

namespace pccl::master {

std::vector<Notifications::Report> Notifications::look(const FindingsByRun& all, Instant now) {
  std::vector<Report> reports;
  std::set<Key> present;
  for (const auto& [run, findings] : all) {
    for (const Finding& finding : findings) {
      if (finding.severity == Severity::kNote) continue;
      Key key{run, finding.code, finding.whom};
      const auto found = standing_.find(key);
      if (found == standing_.end() && standing_.size() == kStandingMax) continue;
      if (!present.insert(key).second) continue;
      Standing& one = standing_[std::move(key)];
      if (found == standing_.end() || one.gone) one.since = now;
      one.gone = false;
      one.finding = finding;
      if (one.reported || now - one.since < after_) continue;
      one.reported = true;
      one.due = now;
      reports.push_back({run, finding, false, one.since});
    }
  }
  for (auto at = standing_.begin(); at != standing_.end();) {
    const auto here = at++;
    Standing& one = here->second;
    if (present.contains(here->first) || one.gone) continue;
    if (one.reported) reports.push_back({std::get<0>(here->first), one.finding, true, one.since});
    one.reported = false;
    one.gone = true;
    one.due = now;
    if (!one.told) standing_.erase(here);
  }
  return reports;
}

std::optional<Notifications::Report> Notifications::begin_command(Instant now) {
  PCCL_ASSERT(!runs_command_);
  auto next = standing_.end();
  for (auto at = standing_.begin(); at != standing_.end(); ++at) {
    if (!wants_command(at->second) || !may_run(at->second.finding.code, now)) continue;
    if (next == standing_.end() || at->second.due < next->second.due) next = at;
  }
  if (next == standing_.end()) return std::nullopt;
  Standing& one = next->second;
  Report report{std::get<0>(next->first), one.finding, one.gone, one.since};
  runs_command_ = true;
  last_command_[one.finding.code] = now;
  one.told = true;
  if (one.gone) standing_.erase(next);
  return report;
}

void Notifications::command_ended() {
  PCCL_ASSERT(runs_command_);
  runs_command_ = false;
}

bool Notifications::may_run(FindingCode code, Instant now) const {
  const auto last = last_command_.find(code);
  return last == last_command_.end() || now - last->second >= kPause;
}

void Notifications::check() const {
  PCCL_ASSERT(standing_.size() <= kStandingMax);
  for (const auto& [key, one] : standing_) {
    PCCL_ASSERT(std::get<1>(key) == one.finding.code && std::get<2>(key) == one.finding.whom);
    PCCL_ASSERT(!one.gone || (one.told && !one.reported));
  }
}

nlohmann::json to_json(const Notifications::Report& report, const WallClock& clock) {
  using std::chrono::milliseconds;
  const auto stood = std::chrono::duration_cast<milliseconds>(clock.now - report.since);
  const milliseconds time(clock.unix_ms);
  const Finding& finding = report.finding;
  return {{"schema", kSnapshotSchema},
          {"event", text(report.ends ? LogEvent::kFindingEnds : LogEvent::kFindingBegins)},
          {"run", report.run},
          {"code", text(finding.code)},
          {"severity", text(finding.severity)},
          {"whom", finding.whom},
          {"text", finding.text},
          {"next", finding.next},
          {"since", iso_text(time - stood)},
          {"stood_s", static_cast<double>(stood.count()) / 1e3},
          {"time", iso_text(time)}};
}

}  // namespace pccl::master
