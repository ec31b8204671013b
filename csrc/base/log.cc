#include "csrc/base/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>

#include "csrc/base/text.h"

namespace pccl {
namespace {

constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};

}  // namespace

void log(LogLevel level, std::string_view message) {
  if (static_cast<int>(level) > g_level.load(std::memory_order_relaxed)) return;
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
  // One call, so that lines of different threads do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
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
  const std::lock_guard lock(mutex_);
  about_ = std::move(about);
}

void LogContext::log(LogLevel level, std::string_view message) const {
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    if (!about_.empty()) line = about_ + ": ";
  }
  pccl::log(level, line.append(message));
}

}  // namespace pccl
