// LogRecord: one line of the log as data, and its two forms: text for people, and JSON for
// programs. Plain values and pure functions.
// Text from outside cannot forge a line or a field: unprintable characters (text.h) are escaped.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "csrc/base/log_event.h"

namespace pccl {

enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };
const char* text(LogLevel level);  // "warning"

// The subject of a line. Empty or none: unknown, or the line has no single subject.
struct LogSubject {
  std::string run = {};
  std::optional<uint32_t> group = {};
  std::string peer = {};  // its name (PCCL_NAME)
  std::optional<uint32_t> rank = {};
  std::string epoch = {};
};

// run "demo", group 1, rank 3: the words for people. No group: 0.
std::string text(const LogSubject& about);

struct LogRecord {
  LogLevel level = LogLevel::kInfo;
  LogEvent event = LogEvent::kOther;
  std::string text = {};
  LogSubject about = {};
  // The words of the text form before `text`, such as: run "demo", rank 3. Empty: none.
  std::string lead = {};
  std::chrono::milliseconds since_1970{0};
};

// "run "demo", rank 3: the text": the lead and the text, printable.
std::string message(const LogRecord& record);

// "pccl 2026-07-31T12:34:56.789Z warning: run "demo", rank 3: the text", and a line end.
std::string text_line(const LogRecord& record);

// {"time":"2026-07-31T12:34:56.789Z","level":"warning","event":"lost","run":"demo","group":0,
//  "peer":"tokyo","rank":3,"epoch":"6b0ca406.1","text":"the text"} on one line, and a line end.
// Unknown fields are left out.
std::string json_line(const LogRecord& record);

}  // namespace pccl
