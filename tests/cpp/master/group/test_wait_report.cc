#include "master/group/wait_report.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

constexpr Duration kLimit = std::chrono::seconds(10);

Instant at(int time_s) { return {std::chrono::seconds(time_s)}; }

// "[a b] text", "log" before it if it belongs into the log.
Lines lines_of(const std::vector<WaitReport::Announcement>& all) {
  Lines lines;
  for (const auto& one : all) {
    std::string line = one.is_first ? "log" : "";
    for (const PeerId peer : one.to) line += " " + std::to_string(peer.value);
    lines.push_back(line + ": " + one.text);
  }
  return lines;
}
Lines look(WaitReport& report, const std::vector<Wait>& waits, int time_s) {
  return lines_of(report.look(waits, kLimit, at(time_s)));
}

TEST(WaitReport, AnnouncesAWaitOnceAndItsEnd) {
  WaitReport report;
  Wait wait{"barrier (#0)", at(5), {kA}, "for rank 1", op(0)};
  EXPECT_EQ(look(report, {wait}, 14), Lines{}) << "9 s are below the limit";
  EXPECT_EQ(look(report, {wait}, 15),
            (Lines{"log 1: barrier (#0) has waited for 10 s for rank 1"}));
  EXPECT_EQ(look(report, {wait}, 16), Lines{});
  wait.waiting.push_back(kB);
  wait.why = "for nobody in particular";
  EXPECT_EQ(look(report, {wait}, 17),
            (Lines{" 2: barrier (#0) has waited for 12 s for nobody in particular"}))
      << "to the member that waits since then, and not into the log again";
  EXPECT_EQ(look(report, {}, 18), (Lines{"log 1 2: barrier (#0) no longer waits, after 13 s"}));
  EXPECT_EQ(look(report, {}, 19), Lines{});
}

TEST(WaitReport, TheNextWaitIsAnotherOneAndHasItsOwnTime) {
  WaitReport report;
  const Wait first{"barrier (#0)", at(0), {kA}, "for x", op(0)},
      next{"barrier (#1)", at(1), {kA}, "for x", op(1)};
  EXPECT_EQ(look(report, {first}, 10).size(), 1u);
  EXPECT_EQ(look(report, {next}, 20), (Lines{"log 1: barrier (#0) no longer waits, after 20 s"}))
      << "it was called together with the first, so it is about to end, too";
  EXPECT_EQ(look(report, {next}, 29), Lines{});
  EXPECT_EQ(look(report, {next}, 30), (Lines{"log 1: barrier (#1) has waited for 29 s for x"}));
  const Wait again{"barrier (#1)", at(31), {kA}, "for x", op(1)};
  EXPECT_EQ(look(report, {again}, 32), (Lines{"log 1: barrier (#1) no longer waits, after 31 s"}))
      << "the same call, made again in another epoch";
}

TEST(WaitReport, SeveralWaitsAreAnnouncedEachToItsMembers) {
  WaitReport report;
  const Wait one{"barrier (a, #0)", at(0), {kA}, "for x", op(0, "a")},
      two{"barrier (b, #0)", at(0), {kB}, "for y", op(0, "b")};
  EXPECT_EQ(look(report, {one, two}, 10),
            (Lines{"log 1: barrier (a, #0) has waited for 10 s for x",
                   "log 2: barrier (b, #0) has waited for 10 s for y"}));
  EXPECT_EQ(look(report, {two}, 11), (Lines{"log 1: barrier (a, #0) no longer waits, after 11 s"}));
}

// A member may leave after the outcome. So it is told of the end before the next tick.
TEST(WaitReport, AnOutcomeEndsTheWaitsForThatCallAtOnce) {
  WaitReport report;
  const Wait operation{"barrier (#0)", at(0), {kA}, "for x", op(0)},
      joint{"update_topology", at(0), {kB}, "for y", protocol::JointKind::kUpdateTopology};
  EXPECT_EQ(look(report, {operation, joint}, 10).size(), 2u);
  EXPECT_EQ(lines_of(report.end(op(1), at(11))), Lines{});
  EXPECT_EQ(lines_of(report.end(op(0), at(11))),
            (Lines{"log 1: barrier (#0) no longer waits, after 11 s"}));
  EXPECT_EQ(lines_of(report.end(op(0), at(12))), Lines{}) << "it is said once";
  EXPECT_EQ(lines_of(report.end(protocol::JointKind::kUpdateTopology, at(12))),
            (Lines{"log 2: update_topology no longer waits, after 12 s"}));
  EXPECT_EQ(look(report, {}, 13), Lines{});
}

TEST(WaitReport, AShortWaitIsNotSaid) {
  WaitReport report;
  EXPECT_EQ(look(report, {{"barrier (#0)", at(0), {kA}, "for x", op(0)}}, 9), Lines{});
  EXPECT_EQ(look(report, {}, 20), Lines{});
}

}  // namespace
}  // namespace pccl::master
