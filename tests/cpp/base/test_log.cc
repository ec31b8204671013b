#include "csrc/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <regex>
#include <string>

#include "csrc/base/assert.h"
#include "csrc/base/log_queue.h"

namespace pccl {
namespace {

std::string captured() {
  EXPECT_TRUE(flush_log(std::chrono::seconds(60)));
  return testing::internal::GetCapturedStderr();
}

std::string logged(LogLevel level, const char* message) {
  testing::internal::CaptureStderr();
  log(level, message);
  return captured();
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
    context.log(LogLevel::kWarning, LogEvent::kLost, "all is lost");
    return captured();
  };
  EXPECT_TRUE(line().ends_with("Z warning: all is lost\n"));
  context.set({"a", 0, "tokyo", 3});
  EXPECT_TRUE(line().ends_with("Z warning: run \"a\", rank 3: all is lost\n"));
  LogContext other;
  other.set({"b"});
  EXPECT_TRUE(line().ends_with("Z warning: run \"a\", rank 3: all is lost\n"));
}

TEST(Log, TextOfOthersForgesNoLine) {
  const std::string line =
      logged(LogLevel::kWarning, "run \"x\"\npccl 00:00:00.000 error: \x1b[2Jforged");
  EXPECT_TRUE(line.ends_with("run \"x\"\\npccl 00:00:00.000 error: \\x1b[2Jforged\n")) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(Log, JsonIsAFormat) {
  set_log_format(LogFormat::kJson);
  const std::string line = logged(LogLevel::kWarning, "peer 1.3 lost");
  set_log_format(LogFormat::kText);
  const std::regex form(
      R"re(\{"time":"[^"]+Z","level":"warning","event":"other","text":"peer 1.3 lost"\}\n)re");
  EXPECT_TRUE(std::regex_match(line, form)) << line;
}

// ---- The queue ----------------------------------------------------------------------------------

TEST(Log, AnOpenQueueGetsTheRecords) {
  log_queue().open();
  EXPECT_EQ(logged(LogLevel::kWarning, "first"), "");
  EXPECT_EQ(logged(LogLevel::kInfo, "not enabled"), "");
  const auto taken = log_queue().take(Duration(0));
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].text, "first");
  EXPECT_NE(taken[0].since_1970.count(), 0);
  EXPECT_TRUE(log_queue().close().empty());
  EXPECT_TRUE(logged(LogLevel::kWarning, "second").ends_with(" warning: second\n"));
}

TEST(Log, ATakenRecordKeepsItsTime) {
  testing::internal::CaptureStderr();
  LogRecord record{LogLevel::kWarning, LogEvent::kOther, "late"};
  record.since_1970 = std::chrono::milliseconds(1785501296789);
  write_log(record);
  EXPECT_EQ(captured(), "pccl 2026-07-31T12:34:56.789Z warning: late\n");
}

TEST(Log, RefusesAnUnknownLevelAndKeepsTheOld) {
  ASSERT_TRUE(set_log_level("error"));
  EXPECT_FALSE(set_log_level("loud"));
  EXPECT_FALSE(set_log_level(""));
  EXPECT_EQ(logged(LogLevel::kWarning, "quiet"), "");
  ASSERT_TRUE(set_log_level("warning"));
}

// ---- The end of a process -----------------------------------------------------------------------

#ifndef PCCL_TSAN  // it ends a forked child that starts a thread

void log_many() {
  for (int i = 1; i <= 1000; ++i) log(LogLevel::kWarning, "line " + std::to_string(i) + ".");
}

TEST(LogDeathTest, AForkedChildWritesItsOwnLinesUpToItsExit) {
  EXPECT_NE(logged(LogLevel::kWarning, "the parent has a thread"), "");
  const auto ended = testing::ExitedWithCode(7);
  EXPECT_EXIT((log_many(), std::exit(7)), ended, "line 1\\..* line 999\\..* line 1000\\.");
}

TEST(LogDeathTest, AnAssertionPrintsItsLineAfterThoseThatWait) {
  EXPECT_DEATH((log_many(), PCCL_ASSERT(1 + 1 == 3)), "line 1000\\.\npccl: assertion failed: 1 ");
}

// A pipe that is full, which nobody reads.
struct FullPipe {
  FullPipe() {
    EXPECT_EQ(pipe2(ends, O_NONBLOCK), 0);
    const std::string page(4096, 'x');
    while (::write(ends[1], page.data(), page.size()) > 0) {
    }
    fcntl(ends[1], F_SETFL, 0);
  }
  ~FullPipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  int ends[2];
};

// How a child ends whose stderr is a full pipe.
template <typename Body>
int end_with_full_stderr(Body body) {
  const FullPipe pipe;
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe.ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(LogDeathTest, ALogThatIsNotReadStopsNoProcess) {
  const auto logs_and_ends = [] {
    log_many();
    end_log();
  };
  EXPECT_EQ(end_with_full_stderr(logs_and_ends), 0);
}

TEST(LogDeathTest, ALogThatIsNotReadDoesNotDelayAnAbort) {
  const auto fails = [] {
    log_many();
    PCCL_ASSERT(1 + 1 == 3);
  };
  const int status = end_with_full_stderr(fails);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
}

TEST(LogDeathTest, AnExitWritesTheQueue) {
  const auto logs_and_ends = [] {
    log_queue().open();
    log(LogLevel::kWarning, "nobody has taken this");
    std::exit(7);
  };
  EXPECT_EXIT(logs_and_ends(), testing::ExitedWithCode(7), "nobody has taken this\n");
}

TEST(LogDeathTest, AForkedChildDoesNotUseTheQueueOfItsParent) {
  log_queue().open();
  log(LogLevel::kWarning, "of the parent");
  testing::internal::CaptureStderr();
  const pid_t child = fork();
  if (child == 0) {
    log(LogLevel::kWarning, "of the child");
    end_log();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(captured().ends_with(" warning: of the child\n"));
  EXPECT_EQ(log_queue().close().size(), 1u);
}

// What waits belongs to the parent. The child would write it a second time.
TEST(LogDeathTest, AForkedChildDoesNotWriteTheLinesOfItsParent) {
  testing::internal::CaptureStderr();
  log_many();
  const pid_t child = fork();
  if (child == 0) {
    log(LogLevel::kWarning, "the child");
    end_log();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  const std::string lines = captured();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1001) << lines;
}

#endif

}  // namespace
}  // namespace pccl
