// Normal case: a finding stands, and the runner starts the command with its JSON. The command ends,
// and the runner posts that to the loop of the master.
// Failures: the runner has no thread: every command fails. The master ends: the runner stops, and
// the command is killed.

#include "master/shell/notifier.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "csrc/base/log.h"
#include "csrc/base/text.h"
#include "master/operator/snapshot.h"

namespace pccl::master {
namespace {

LogRecord line_about(const Notifications::Report& report) {
  const Finding& finding = report.finding;
  LogRecord record;
  record.level =
      finding.severity == Severity::kError && !report.ends ? LogLevel::kWarning : LogLevel::kInfo;
  record.event = report.ends ? LogEvent::kFindingEnds : LogEvent::kFindingBegins;
  record.text = std::string("finding ") + text(finding.code) + (report.ends ? " is over: " : ": ");
  record.text += finding.text;
  record.about.run = report.run;
  record.lead = text(record.about);
  if (finding.whom.size() == 1) record.about.peer = finding.whom[0];
  return record;
}

}  // namespace

Notifier::Notifier(net::Loop& loop, Options options, std::function<FindingsByRun()> findings)
    : loop_(loop),
      options_(std::move(options)),
      findings_(std::move(findings)),
      notifications_(options_.after),
      timer_(loop, [this] { look(); }) {
  loop.assert_on_loop();
  timer_.arm(monotonic_now() + options_.look);
}

// The command is destroyed after the loop that it belongs to has ended.
Notifier::~Notifier() {
  if (runner_ != nullptr) runner_->stop();
}

void Notifier::look() {
  loop_.assert_on_loop();
  for (const Notifications::Report& report : notifications_.look(findings_(), monotonic_now()))
    log(line_about(report));
  begin_command();
  timer_.arm(monotonic_now() + options_.look);
}

void Notifier::begin_command() {
  if (options_.command.empty() || notifications_.runs_command()) return;
  const Instant now = monotonic_now();
  const auto report = notifications_.begin_command(now);
  if (!report) return;
  const auto sent = to_json(*report, {now, unix_now().count()});
  // A name may have bytes that are no text.
  run(sent.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void Notifier::run(const std::string& input) {
  if (runner_ == nullptr) runner_ = std::make_unique<net::Loop>("pccl-notify");
  if (!runner_->status().ok()) return ended(runner_->status());
  const auto then = [this, here = std::weak_ptr(here_)](const Status& status) {
    loop_.post([this, here, status] {
      if (!here.expired()) ended(status);
    });
  };
  runner_->post([this, input, then] {
    command_ = std::make_unique<net::Command>(*runner_, options_.command, input, options_.limit,
                                              [this, then](const Status& status) {
                                                command_.reset();
                                                then(status);
                                              });
  });
}

void Notifier::ended(const Status& status) {
  loop_.assert_on_loop();
  notifications_.command_ended();
  if (status.ok()) return;
  log(LogLevel::kWarning, LogEvent::kNotifyFailed, "the command of --notify " + status.message);
}

}  // namespace pccl::master
