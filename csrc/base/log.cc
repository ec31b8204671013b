#include "csrc/base/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

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
  localtime_r(&seconds, &parts);
  char head[64];
  std::snprintf(head, sizeof head, "pccl %02d:%02d:%02d.%03d %s: ", parts.tm_hour, parts.tm_min,
                parts.tm_sec, static_cast<int>(millis.count()), kNames[static_cast<int>(level)]);
  std::string line = head;
  line.append(printable(message)).push_back('\n');
  // One call, so that lines of different threads do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

bool set_log_level(std::string_view name) {
  for (int level = 0; level < 4; ++level) {
    if (name != kNames[level]) continue;
    g_level.store(level, std::memory_order_relaxed);
    return true;
  }
  return false;
}

}  // namespace pccl
