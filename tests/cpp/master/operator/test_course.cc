#include "master/operator/course.h"

#include <nlohmann/json.hpp>

#include "master/operator/snapshot.h"
#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

using nlohmann::json;

json shown_group(Harness& h, Detail detail = Detail::kHistory) {
  return snapshot(h.core().view(), {h.now(), 0}, 0, detail)["groups"][0];
}

TEST(Course, IsThereOnlyIfItIsAskedFor) {
  Harness h;
  h.found({"a", "b"});
  EXPECT_FALSE(shown_group(h, Detail::kPresent).contains("history"));
  EXPECT_FALSE(shown_group(h, Detail::kPresent).contains("scalars_history"));
}

TEST(Course, TheNewestPointIsLast) {
  Harness h;
  h.found({"a", "b", "c"});
  h.tick_with({"a", "b", "c"}, 10);
  for (const char* name : {"a", "b", "c"})
    h.say(name, protocol::Begin{epoch(1), op(0), all_reduce(25)});
  for (const char* name : {"a", "b", "c"}) h.say(name, protocol::Done{epoch(1), op(0), 0});
  h.say("c", protocol::Leave{});
  const json history = shown_group(h)["history"];
  EXPECT_EQ(history["step_s"], 5.0);
  for (const char* name : {"operations", "bytes", "losses", "joins"})
    ASSERT_EQ(history[name].size(), 720u) << name;
  EXPECT_EQ(history["operations"][719], 1);
  EXPECT_EQ(history["bytes"][719], 100.0);
  EXPECT_EQ(history["losses"][719], 1);
  EXPECT_EQ(history["joins"][718], 3);
}

TEST(Course, ReportedNumbersHaveTheirAge) {
  Harness h;
  h.found({"a", "b"});
  h.step(Watched{});
  protocol::Telemetry report;
  report.all_us = 1;
  report.scalars = {{"loss", 2.5}, {"step", 1}};
  h.say("a", report);
  h.tick_with({"a", "b"}, 8);
  report.all_us = 2;
  report.scalars = {{"loss", 2.25}, {"step", 1}};
  h.say("a", report);
  h.tick_with({"a", "b"}, 2);
  EXPECT_EQ(shown_group(h)["scalars_history"],
            (json{{"loss", {{5.0, 2.5}, {1.0, 2.25}}}, {"step", {{5.0, 1.0}}}}))
      << "a number that has not changed gives no point";
}

TEST(Course, IsSmallAtItsLargest) {
  Harness h;
  h.found({"a", "b"});
  h.step(Watched{});
  for (int i = 0; i < 600; ++i) {
    h.step(Watched{});
    protocol::Telemetry report;
    report.all_us = static_cast<uint64_t>(i) + 1;
    for (int name = 0; name < 8; ++name)
      report.scalars.push_back(
          {"a name of thirty-two letters: " + std::to_string(name), 1.0 / (i + 3)});
    h.say("a", report);
    h.tick_with({"a", "b"}, 4);
  }
  EXPECT_LT(shown_group(h).dump().size(), 150'000u);
}

}  // namespace
}  // namespace pccl::master
