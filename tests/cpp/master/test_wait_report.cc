#include "master/wait_report.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

constexpr Duration kLimit = std::chrono::seconds(10);

Instant at(int seconds) { return {std::chrono::seconds(seconds)}; }

// "[a b] text", "log" before it if it belongs into the log.
Lines look(WaitReport& report, const std::vector<Wait>& waits, int seconds) {
  Lines lines;
  for (const auto& one : report.look(waits, kLimit, at(seconds))) {
    std::string line = one.is_first ? "log" : "";
    for (const PeerId peer : one.to) line += " " + std::to_string(peer.value);
    lines.push_back(line + ": " + one.text);
  }
  return lines;
}

TEST(WaitReport, AnnouncesAWaitOnceAndItsEnd) {
  WaitReport report;
  Wait wait{"barrier (#0)", at(5), {kA}, "for rank 1"};
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
  const Wait first{"barrier (#0)", at(0), {kA}, "for x"},
      next{"barrier (#1)", at(1), {kA}, "for x"};
  EXPECT_EQ(look(report, {first}, 10).size(), 1u);
  EXPECT_EQ(look(report, {next}, 20), (Lines{"log 1: barrier (#0) no longer waits, after 20 s"}))
      << "it was called together with the first, so it is about to end, too";
  EXPECT_EQ(look(report, {next}, 29), Lines{});
  EXPECT_EQ(look(report, {next}, 30), (Lines{"log 1: barrier (#1) has waited for 29 s for x"}));
  const Wait again{"barrier (#1)", at(31), {kA}, "for x"};
  EXPECT_EQ(look(report, {again}, 32), (Lines{"log 1: barrier (#1) no longer waits, after 31 s"}))
      << "the same call, made again in another epoch";
}

TEST(WaitReport, SeveralWaitsAreAnnouncedEachToItsMembers) {
  WaitReport report;
  const Wait one{"barrier (a, #0)", at(0), {kA}, "for x"},
      two{"barrier (b, #0)", at(0), {kB}, "for y"};
  EXPECT_EQ(look(report, {one, two}, 10),
            (Lines{"log 1: barrier (a, #0) has waited for 10 s for x",
                   "log 2: barrier (b, #0) has waited for 10 s for y"}));
  EXPECT_EQ(look(report, {two}, 11), (Lines{"log 1: barrier (a, #0) no longer waits, after 11 s"}));
}

TEST(WaitReport, AShortWaitIsNotSaid) {
  WaitReport report;
  EXPECT_EQ(look(report, {{"barrier (#0)", at(0), {kA}, "for x"}}, 9), Lines{});
  EXPECT_EQ(look(report, {}, 20), Lines{});
}

}  // namespace
}  // namespace pccl::master
