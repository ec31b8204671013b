// log: writes one line to stderr for each event that deserves a person's attention. PCCL_LOG
// chooses the level (error, warning, info, debug; default warning).
// Any thread may call it. A thread of the log writes the lines (LineWriter), so no caller waits for
// the reader of stderr. Each line is written whole, as text or as JSON (log_record.h). Cores do not
// log: they emit a Log effect.
// While the log_queue() is open, the records go there instead: Python's logging takes them.
// A forked child starts a log thread of its own, with a closed queue. It does not write the lines
// that waited in its parent.
// If a warning reports that a condition has begun, a later warning reports its end.
#pragma once

#include <string>
#include <string_view>

#include "csrc/base/clock.h"
#include "csrc/base/log_record.h"
#include "csrc/base/mutex.h"

namespace pccl {

class LogQueue;

// Logs the record if its level is enabled, with the present time. The time is UTC (ISO 8601), so
// that the lines of machines in several time zones can be merged.
void log(LogRecord record);
void log(LogLevel level, LogEvent event, std::string_view message);
void log(LogLevel level, std::string_view message);
// The line begins with the words for the subject, if there are any.
void log_about(LogSubject about, LogLevel level, LogEvent event, std::string_view message);

// Writes a warning. Other classes have this function as a default argument.
void log_warning(const std::string& message);

// Sets the level by its name, from the environment or a command line. Returns false, and changes
// nothing, if the name is unknown.
bool set_log_level(std::string_view name);

enum class LogFormat { kText, kJson };
void set_log_format(LogFormat format);

// The queue of this process; closed at first.
LogQueue& log_queue();
// Writes a record that was taken from the queue, with its own time. Its level is not looked at.
void write_log(const LogRecord& record);

// Waits until all lines are written, but no longer than `limit`. Returns whether they are.
bool flush_log(Duration limit);

// The same as flush_log(), at the end of a process. It also closes the queue, and writes what waits
// there. All calls together wait for at most one second. exit() calls it. A process that ends in
// another way should call it, so that no line is lost.
void end_log();

// Writes `line`, the last line of a process that aborts next. The lines that wait are written
// first. All this takes at most the second of end_log(). `line` ends in '\n'.
void log_last(std::string_view line);

// LogContext: the subject of all lines of one object, such as the run and the rank of a peer. The
// object that logs owns it, since one process may be several peers. Any thread may call it.
class LogContext {
 public:
  void set(LogSubject about);
  // As log_about().
  void log(LogLevel level, LogEvent event, std::string_view message) const;

 private:
  mutable Mutex mutex_;
  LogSubject about_ PCCL_GUARDED_BY(mutex_);
};

}  // namespace pccl
