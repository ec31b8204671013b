#include "csrc/base/log_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pccl {
namespace {

LogRecord loss() {
  return {LogLevel::kWarning,   LogEvent::kLost,
          "tokyo lost: silent", {"night", 1, "tokyo", 3, "6b0ca406.1"},
          "run \"night\"",      std::chrono::milliseconds(1785501296789)};
}

TEST(LogRecord, ATextHasTheTimeTheLevelAndTheLead) {
  EXPECT_EQ(text_line(loss()),
            "pccl 2026-07-31T12:34:56.789Z warning: run \"night\": tokyo lost: silent\n");
  LogRecord record = loss();
  record.lead.clear();
  EXPECT_EQ(text_line(record), "pccl 2026-07-31T12:34:56.789Z warning: tokyo lost: silent\n");
}

TEST(LogRecord, ASubjectHasWordsForPeople) {
  EXPECT_EQ(text(LogSubject{}), "");
  EXPECT_EQ(text(LogSubject{"night", 0}), "run \"night\"");
  EXPECT_EQ(text(LogSubject{"night", 0, "tokyo", 0, "1.1"}), "run \"night\", rank 0");
  EXPECT_EQ(text(LogSubject{"night", 2, "", 3}), "run \"night\", group 2, rank 3");
}

TEST(LogRecord, JsonHasWhatIsKnown) {
  EXPECT_EQ(json_line(loss()),
            R"({"time":"2026-07-31T12:34:56.789Z","level":"warning","event":"lost",)"
            R"("run":"night","group":1,"peer":"tokyo","rank":3,"epoch":"6b0ca406.1",)"
            R"("text":"tokyo lost: silent"})"
            "\n");
  LogRecord record = loss();
  record.about = {};
  EXPECT_EQ(json_line(record),
            R"({"time":"2026-07-31T12:34:56.789Z","level":"warning","event":"lost",)"
            R"("text":"tokyo lost: silent"})"
            "\n");
}

// Names and texts of errors come from other machines.
TEST(LogRecord, TextFromOutsideForgesNoField) {
  const std::string_view bad[] = {
      "\",\"level\":\"error", "a\nb", "\\", "\x1b[2J", "\xff\xfe", "\xe2\x80\xae", "t\xc3\xb6kyo"};
  for (const std::string_view text : bad) {
    LogRecord record = loss();
    record.text = record.about.peer = record.about.run = text;
    const std::string line = json_line(record);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const auto read = nlohmann::json::parse(line);
    EXPECT_EQ(read.at("level"), "warning");
    EXPECT_EQ(read.size(), 9u);
    EXPECT_EQ(read.at("text"), read.at("peer"));
    const std::string shown = text_line(record);
    EXPECT_EQ(shown.find('\n'), shown.size() - 1);
    EXPECT_EQ(shown.find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace pccl
