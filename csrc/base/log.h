// log: writes one line to stderr for each event that deserves a person's attention. PCCL_LOG
// chooses the level (error, warning, info, debug; default warning).
// Any thread may call it. A thread of the log writes the lines (LineWriter), so no caller waits for
// the reader of stderr. Each line is written whole. Text from outside cannot forge a line:
// unprintable characters (text.h) are escaped. Cores do not log: they emit a Log effect.
// A forked child starts a log thread of its own. It does not write the lines that waited in its
// parent.
// If a warning reports that a condition has begun, a later warning reports its end.
#pragma once

#include <string>
#include <string_view>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"

namespace pccl {

enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Writes "pccl 2026-07-31T12:34:56.789Z warning: <message>" if `level` is enabled. The time is UTC
// (ISO 8601), so that the lines of machines in several time zones can be merged.
void log(LogLevel level, std::string_view message);

// Writes a warning. Other classes have this function as a default argument.
void log_warning(const std::string& message);

// Sets the level by its name, from the environment or a command line. Returns false, and changes
// nothing, if the name is unknown.
bool set_log_level(std::string_view name);

// Waits until all lines are written, but no longer than `limit`. Returns whether they are.
bool flush_log(Duration limit);

// The same as flush_log(), at the end of a process. All calls together wait for at most one second.
// exit() calls it. A process that ends in another way should call it, so that no line is lost.
void end_log();

// Writes `line`, the last line of a process that aborts next. The lines that wait are written
// first. All this takes at most the second of end_log(). `line` ends in '\n'.
void log_last(std::string_view line);

// LogContext: the first words of all lines about one subject, such as the run and the rank of a
// peer. The object that logs owns it, since one process may be several peers. Any thread may call
// it.
class LogContext {
 public:
  // `about` is, for example: run "demo", rank 3. Empty: the lines begin with their message.
  void set(std::string about);
  void log(LogLevel level, std::string_view message) const;

 private:
  mutable Mutex mutex_;
  std::string about_ PCCL_GUARDED_BY(mutex_);
};

}  // namespace pccl
