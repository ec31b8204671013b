#include "csrc/base/log_queue.h"

#include <iterator>
#include <utility>

#include "csrc/base/text.h"

namespace pccl {

void LogQueue::open() {
  const Lock lock(mutex_);
  open_ = true;
}

std::vector<LogRecord> LogQueue::close() {
  const Lock lock(mutex_);
  open_ = false;
  changed_.notify_all();
  return all();
}

bool LogQueue::push(const LogRecord& record) {
  const Lock lock(mutex_);
  if (!open_) return false;
  if (records_.size() == kRecordsMax) {
    ++dropped_;
    dropped_at_ = record.since_1970;
    return true;
  }
  records_.push_back(record);
  changed_.notify_one();
  return true;
}

std::vector<LogRecord> LogQueue::take(Duration limit) {
  Lock lock(mutex_);
  const Instant deadline = monotonic_now() + limit;
  while (open_ && records_.empty()) {
    if (!changed_.wait_until(lock, deadline)) break;
  }
  return all();
}

std::vector<LogRecord> LogQueue::all() {
  std::vector<LogRecord> taken(std::make_move_iterator(records_.begin()),
                               std::make_move_iterator(records_.end()));
  records_.clear();
  if (dropped_ == 0) return taken;
  LogRecord report{LogLevel::kWarning, LogEvent::kLinesDropped};
  report.text = "dropped " + count_text(std::exchange(dropped_, 0), "line") +
                " of this log here: they were taken too slowly";
  report.since_1970 = dropped_at_;
  taken.push_back(std::move(report));
  return taken;
}

}  // namespace pccl
