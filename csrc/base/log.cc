#include "csrc/base/log.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "csrc/base/line_writer.h"
#include "csrc/base/log_queue.h"
#include "csrc/base/text.h"

namespace pccl {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};
std::atomic<LogFormat> g_format{LogFormat::kText};

constexpr Duration kEndMax = std::chrono::seconds(1);

// Never destroyed, because other threads and destructors may log until the process is gone.
std::atomic<LineWriter*> g_writer{nullptr};
std::atomic<LineWriter*> g_writer_of_parent{nullptr};  // so that leak checkers still find it
std::atomic<LogQueue*> g_queue{new LogQueue};
std::atomic<LogQueue*> g_queue_of_parent{nullptr};
std::atomic<Duration> g_end_left{kEndMax};  // the time that end_log() may still wait

// In a forked child: the child does not have the threads, and the state of the mutexes is unknown.
// So the child has a queue of its own, and will make a writer of its own.
void forget_in_child() {
  LineWriter* const before = g_writer.exchange(nullptr);
  if (before != nullptr) g_writer_of_parent = before;
  g_queue_of_parent = g_queue.exchange(new LogQueue);
  g_end_left = kEndMax;
}

// Registered as early as possible: exit() calls the last registered function first, so it calls
// end_log() late.
[[maybe_unused]] const int kWatched =
    pthread_atfork(nullptr, nullptr, forget_in_child) + std::atexit(end_log);

std::string line_of(const LogRecord& record) {
  return g_format.load(std::memory_order_relaxed) == LogFormat::kJson ? json_line(record)
                                                                      : text_line(record);
}

std::string dropped_line(uint64_t count) {
  LogRecord record{LogLevel::kWarning, LogEvent::kLinesDropped};
  record.text = "dropped " + count_text(count, "line") +
                " of this log here: the reader of stderr was too slow";
  record.since_1970 = unix_now();
  return line_of(record);
}

LineWriter& writer() {
  LineWriter* found = g_writer.load();
  if (found != nullptr) return *found;
  auto* const made = new LineWriter(STDERR_FILENO, dropped_line);
  if (g_writer.compare_exchange_strong(found, made)) return *made;
  delete made;
  return *found;
}

}  // namespace

void log(LogRecord record) {
  if (static_cast<int>(record.level) > g_level.load(std::memory_order_relaxed)) return;
  record.since_1970 = unix_now();
  if (!log_queue().push(record)) write_log(record);
}

void log(LogLevel level, LogEvent event, std::string_view message) {
  log({level, event, std::string(message)});
}

void log(LogLevel level, std::string_view message) { log(level, LogEvent::kOther, message); }

void log_about(LogSubject about, LogLevel level, LogEvent event, std::string_view message) {
  std::string lead = text(about);
  log({level, event, std::string(message), std::move(about), std::move(lead)});
}

LogQueue& log_queue() { return *g_queue.load(); }

void write_log(const LogRecord& record) { writer().push(line_of(record)); }

bool flush_log(Duration limit) {
  LineWriter* const found = g_writer.load();
  return found == nullptr || found->flush(limit);
}

void end_log() {
  const Instant begin = monotonic_now();
  for (const LogRecord& record : log_queue().close()) write_log(record);
  flush_log(g_end_left);
  g_end_left = std::max(g_end_left.load() - (monotonic_now() - begin), Duration(0));
}

void log_last(std::string_view line) {
  end_log();
  write_before(monotonic_now() + g_end_left.load(), STDERR_FILENO, line);
}

void log_warning(const std::string& message) { log(LogLevel::kWarning, message); }

bool set_log_level(std::string_view name) {
  for (const LogLevel level :
       {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug}) {
    if (name != text(level)) continue;
    g_level.store(static_cast<int>(level), std::memory_order_relaxed);
    return true;
  }
  return false;
}

void set_log_format(LogFormat format) { g_format.store(format, std::memory_order_relaxed); }

void LogContext::set(LogSubject about) {
  const Lock lock(mutex_);
  about_ = std::move(about);
}

void LogContext::log(LogLevel level, LogEvent event, std::string_view message) const {
  LogSubject about;
  {
    const Lock lock(mutex_);
    about = about_;
  }
  log_about(std::move(about), level, event, message);
}

}  // namespace pccl
