#include "master/operator/notifications.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "master/operator/snapshot.h"

namespace pccl::master {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr auto kSilent = FindingCode::kPeerSilent;
constexpr auto kAlone = FindingCode::kAloneWaitingForFounders;

Finding finding(FindingCode code, std::vector<std::string> whom = {"b"}) {
  return {code, Severity::kError, std::move(whom), "it stands still", "look at it"};
}

std::string brief(const Notifications::Report& report) {
  return report.run + " " + text(report.finding.code) + (report.ends ? " ends" : " begins");
}

class NotificationsTest : public testing::Test {
 protected:
  ~NotificationsTest() override { notifications.check(); }

  // The reports for the log.
  std::vector<std::string> look(const FindingsByRun& all) {
    std::vector<std::string> out;
    for (const auto& report : notifications.look(all, now)) out.push_back(brief(report));
    notifications.check();
    return out;
  }
  // The report of the command that begins, which ends at once; "" if none begins.
  std::string command() {
    const auto report = notifications.begin_command(now);
    if (!report) return "";
    notifications.command_ended();
    return brief(*report);
  }
  void pass(Duration time) { now = now + time; }

  using Lines = std::vector<std::string>;
  const FindingsByRun silent{{"night", {finding(kSilent)}}};
  Instant now = Instant{} + std::chrono::hours(1);
  Notifications notifications{seconds(60)};
};

TEST_F(NotificationsTest, AFindingIsReportedWhenItHasStood) {
  EXPECT_EQ(look(silent), Lines{});
  pass(seconds(59));
  EXPECT_EQ(look(silent), Lines{});
  EXPECT_EQ(command(), "");
  pass(seconds(1));
  EXPECT_EQ(look(silent), Lines{"night peer_silent begins"});
  EXPECT_EQ(command(), "night peer_silent begins");
  pass(minutes(10));
  EXPECT_EQ(look(silent), Lines{}) << "once";
  EXPECT_EQ(command(), "");
  EXPECT_EQ(look({}), Lines{"night peer_silent ends"});
  EXPECT_EQ(command(), "night peer_silent ends");
  EXPECT_EQ(command(), "");
}

TEST_F(NotificationsTest, AShortFindingIsNotReported) {
  look(silent);
  pass(seconds(59));
  EXPECT_EQ(look({{"night", {}}}), Lines{});
  pass(seconds(2));
  EXPECT_EQ(look(silent), Lines{}) << "it begins anew";
  EXPECT_EQ(command(), "");
}

TEST_F(NotificationsTest, NotesAreIgnored) {
  Finding note = finding(FindingCode::kSlowLink);
  note.severity = Severity::kNote;
  look({{"night", {note}}});
  pass(minutes(5));
  EXPECT_EQ(look({{"night", {note}}}), Lines{});
}

TEST_F(NotificationsTest, AReportHasTheLatestWords) {
  look(silent);
  Finding later = finding(kSilent);
  later.text = "it has stood still for 60 s";
  pass(seconds(60));
  look({{"night", {later}}});
  const auto report = notifications.begin_command(now);
  EXPECT_EQ(report->finding.text, later.text);
  EXPECT_EQ(now - report->since, seconds(60));
  notifications.command_ended();
}

TEST_F(NotificationsTest, OtherGuiltyPeersAreAnotherFinding) {
  look(silent);
  pass(seconds(60));
  const FindingsByRun both{{"night", {finding(kSilent), finding(kSilent, {"c"})}}};
  EXPECT_EQ(look(both), Lines{"night peer_silent begins"});
  pass(seconds(60));
  EXPECT_EQ(look(both), Lines{"night peer_silent begins"});
}

TEST_F(NotificationsTest, ACodeHasOneCommandInAMinute) {
  const FindingsByRun all{{"day", {finding(kSilent), finding(kAlone)}},
                          {"night", {finding(kSilent)}}};
  look(all);
  pass(seconds(60));
  look(all);
  EXPECT_EQ(command(), "day alone_waiting_for_founders begins");
  EXPECT_EQ(command(), "day peer_silent begins");
  EXPECT_EQ(command(), "");
  pass(seconds(59));
  EXPECT_EQ(command(), "");
  pass(seconds(1));
  EXPECT_EQ(command(), "night peer_silent begins");
}

TEST_F(NotificationsTest, TheFindingThatWasDueFirstHasTheFirstCommand) {
  const FindingsByRun both{{"day", {finding(kAlone)}}, {"night", {finding(kSilent)}}};
  look(silent);
  pass(seconds(30));
  look(both);
  pass(seconds(30));
  EXPECT_EQ(look(both), Lines{"night peer_silent begins"});
  pass(seconds(30));
  EXPECT_EQ(look(both), Lines{"day alone_waiting_for_founders begins"});
  EXPECT_EQ(command(), "night peer_silent begins");
  EXPECT_EQ(command(), "day alone_waiting_for_founders begins");
}

TEST_F(NotificationsTest, AFindingThatEndsBeforeItsCommandNeedsNone) {
  const FindingsByRun both{{"day", {finding(kSilent)}}, {"night", {finding(kSilent)}}};
  look(both);
  pass(seconds(60));
  look(both);
  EXPECT_EQ(command(), "day peer_silent begins");
  EXPECT_EQ(look({{"day", {finding(kSilent)}}}), Lines{"night peer_silent ends"});
  pass(minutes(5));
  EXPECT_EQ(command(), "");
}

TEST_F(NotificationsTest, AFindingThatComesBackBeforeTheCommandOfItsEndNeedsNone) {
  look(silent);
  pass(seconds(60));
  look(silent);
  EXPECT_EQ(command(), "night peer_silent begins");
  pass(seconds(10));
  EXPECT_EQ(look({}), Lines{"night peer_silent ends"});
  EXPECT_EQ(command(), "") << "a minute has not passed";
  pass(seconds(10));
  look(silent);
  pass(minutes(2));
  EXPECT_EQ(look(silent), Lines{"night peer_silent begins"});
  EXPECT_EQ(command(), "") << "the operator knows";
  EXPECT_EQ(look({}), Lines{"night peer_silent ends"});
  EXPECT_EQ(command(), "night peer_silent ends");
}

TEST_F(NotificationsTest, OneCommandRunsAtATime) {
  const FindingsByRun both{{"night", {finding(kSilent), finding(kAlone)}}};
  look(both);
  pass(seconds(60));
  look(both);
  ASSERT_TRUE(notifications.begin_command(now));
  EXPECT_DEATH(notifications.begin_command(now), "runs_command_");
  notifications.command_ended();
  EXPECT_TRUE(notifications.begin_command(now));
}

TEST_F(NotificationsTest, ATimeOfZeroReportsAtOnce) {
  Notifications at_once(Duration(0));
  ASSERT_EQ(at_once.look(silent, now).size(), 1u);
  EXPECT_EQ(at_once.look({}, now).size(), 1u);
}

TEST_F(NotificationsTest, WatchedFindingsAreBounded) {
  FindingsByRun many;
  for (size_t i = 0; i < Notifications::kStandingMax + 5; ++i)
    many["run " + std::to_string(i)] = {finding(kSilent)};
  look(many);
  pass(seconds(60));
  EXPECT_EQ(look(many).size(), Notifications::kStandingMax);
  many.erase("run 0");  // makes room for one
  EXPECT_EQ(look(many), Lines{"run 0 peer_silent ends"});
  look(many);
  pass(seconds(60));
  EXPECT_EQ(look(many).size(), 1u);
}

TEST_F(NotificationsTest, TheCommandGetsOneObject) {
  Notifications::Report report{"night", finding(kSilent), false, now};
  pass(milliseconds(60250));
  const auto sent = to_json(report, {now, 1785501296789});
  EXPECT_EQ(sent, nlohmann::json::parse(R"({
    "schema": 1, "event": "finding_begins", "run": "night", "code": "peer_silent",
    "severity": "error", "whom": ["b"], "text": "it stands still", "next": "look at it",
    "since": "2026-07-31T12:33:56.539Z", "stood_s": 60.25, "time": "2026-07-31T12:34:56.789Z"})"));
  report.ends = true;
  EXPECT_EQ(to_json(report, {now, 0}).at("event"), "finding_ends");
}

}  // namespace
}  // namespace pccl::master
