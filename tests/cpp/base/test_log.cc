#include "csrc/base/log.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <regex>
#include <string>

namespace pccl {
namespace {

std::string logged(LogLevel level, const char* message) {
  testing::internal::CaptureStderr();
  log(level, message);
  return testing::internal::GetCapturedStderr();
}

TEST(Log, WritesWholeLinesUpToTheChosenLevel) {
  ASSERT_TRUE(set_log_level("warning"));
  EXPECT_EQ(logged(LogLevel::kInfo, "quiet"), "");
  const std::string line = logged(LogLevel::kWarning, "peer 1.3 lost");
  EXPECT_EQ(line.rfind("pccl ", 0), 0u);
  EXPECT_TRUE(line.ends_with(" warning: peer 1.3 lost\n")) << line;
  ASSERT_TRUE(set_log_level("debug"));
  EXPECT_NE(logged(LogLevel::kDebug, "chatty"), "");
  ASSERT_TRUE(set_log_level("warning"));
}

// The same moment has the same text on all machines, whatever their time zone.
TEST(Log, LinesBeginWithDateAndTimeInUtc) {
  const char* const before = std::getenv("TZ");
  const std::string zone = before == nullptr ? "" : before;
  ASSERT_EQ(setenv("TZ", "XYZ-7:30", 1), 0);
  tzset();
  // std::time() may be some milliseconds behind.
  const auto seconds = [] {
    return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  };
  const std::time_t earliest = seconds();
  const std::string line = logged(LogLevel::kWarning, "peer 1.3 lost");
  const std::time_t latest = seconds();
  before == nullptr ? unsetenv("TZ") : setenv("TZ", zone.c_str(), 1);
  tzset();
  const std::regex form(
      "pccl (\\d{4})-(\\d\\d)-(\\d\\d)T(\\d\\d):(\\d\\d):(\\d\\d)\\.\\d{3}Z warning: peer 1.3 "
      "lost\n");
  std::smatch parts;
  ASSERT_TRUE(std::regex_match(line, parts, form)) << line;
  std::tm read{};
  read.tm_year = std::stoi(parts[1]) - 1900;
  read.tm_mon = std::stoi(parts[2]) - 1;
  read.tm_mday = std::stoi(parts[3]);
  read.tm_hour = std::stoi(parts[4]);
  read.tm_min = std::stoi(parts[5]);
  read.tm_sec = std::stoi(parts[6]);
  EXPECT_GE(timegm(&read), earliest);
  EXPECT_LE(timegm(&read), latest);
}

TEST(Log, AContextSaysWhatItsLinesAreAbout) {
  LogContext context;
  const auto line = [&] {
    testing::internal::CaptureStderr();
    context.log(LogLevel::kWarning, "all is lost");
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_TRUE(line().ends_with("Z warning: all is lost\n"));
  context.set("run \"a\", rank 3");
  EXPECT_TRUE(line().ends_with("Z warning: run \"a\", rank 3: all is lost\n"));
  LogContext other;
  other.set("run \"b\"");
  EXPECT_TRUE(line().ends_with("Z warning: run \"a\", rank 3: all is lost\n"));
}

TEST(Log, WhatOthersWroteForgesNoLine) {
  const std::string line =
      logged(LogLevel::kWarning, "run \"x\"\npccl 00:00:00.000 error: \x1b[2Jforged");
  EXPECT_TRUE(line.ends_with("run \"x\"\\npccl 00:00:00.000 error: \\x1b[2Jforged\n")) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(Log, RefusesAnUnknownLevelAndKeepsTheOld) {
  ASSERT_TRUE(set_log_level("error"));
  EXPECT_FALSE(set_log_level("loud"));
  EXPECT_FALSE(set_log_level(""));
  EXPECT_EQ(logged(LogLevel::kWarning, "quiet"), "");
  ASSERT_TRUE(set_log_level("warning"));
}

}  // namespace
}  // namespace pccl
