#include "csrc/base/log.h"

#include <gtest/gtest.h>

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
