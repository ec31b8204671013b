#include "csrc/base/log.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>

#include "csrc/base/line_writer.h"
#include "csrc/base/text.h"

namespace pccl {
namespace {

constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};

constexpr Duration kEndMax = std::chrono::seconds(1);

// Never destroyed, because other threads and destructors may log until the process is gone.
std::atomic<LineWriter*> g_writer{nullptr};
std::atomic<LineWriter*> g_writer_of_parent{nullptr};  // so that leak checkers still find it
std::atomic<Duration> g_end_left{kEndMax};             // the time that end_log() may still wait

// In a forked child: the child does not have the thread, and the state of the mutex is unknown. So
// the child will make a writer of its own.
void forget_in_child() {
  LineWriter* const before = g_writer.exchange(nullptr);
  if (before != nullptr) g_writer_of_parent = before;
  g_end_left = kEndMax;
}

// Registered as early as possible: exit() calls the last registered function first, so it calls
// end_log() late.
[[maybe_unused]] const int kWatched =
    pthread_atfork(nullptr, nullptr, forget_in_child) + std::atexit(end_log);

std::string line_of(LogLevel level, std::string_view message) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()) % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char time[32], millisecond[8];
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(millisecond, sizeof millisecond, ".%03dZ", static_cast<int>(millis.count()));
  std::string line = std::string("pccl ") + time + millisecond + " ";
  line.append(kNames[static_cast<int>(level)]).append(": ");
  line.append(printable(message)).push_back('\n');
  return line;
}

std::string dropped_line(uint64_t count) {
  return line_of(LogLevel::kWarning, "dropped " + count_text(count, "line") +
                                         " of this log here: the reader of stderr was too slow");
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

void log(LogLevel level, std::string_view message) {
  if (static_cast<int>(level) > g_level.load(std::memory_order_relaxed)) return;
  writer().push(line_of(level, message));
}

bool flush_log(Duration limit) {
  LineWriter* const found = g_writer.load();
  return found == nullptr || found->flush(limit);
}

void end_log() {
  const Instant begin = monotonic_now();
  flush_log(g_end_left);
  g_end_left = std::max(g_end_left.load() - (monotonic_now() - begin), Duration(0));
}

void log_last(std::string_view line) {
  end_log();
  write_before(monotonic_now() + g_end_left.load(), STDERR_FILENO, line);
}

void log_warning(const std::string& message) { log(LogLevel::kWarning, message); }

bool set_log_level(std::string_view name) {
  for (int level = 0; level < 4; ++level) {
    if (name != kNames[level]) continue;
    g_level.store(level, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void LogContext::set(std::string about) {
  const Lock lock(mutex_);
  about_ = std::move(about);
}

void LogContext::log(LogLevel level, std::string_view message) const {
  std::string line;
  {
    const Lock lock(mutex_);
    if (!about_.empty()) line = about_ + ": ";
  }
  pccl::log(level, line.append(message));
}

}  // namespace pccl
