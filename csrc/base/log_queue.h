// LogQueue: records of the log that wait for another logging system, which takes them on a thread
// of its own. So no thread that logs waits for that system. log.h has the one of the process.
// Any thread may call the methods, except in a child process that was forked after the constructor.
// Bounded: of more than kRecordsMax records, further ones are dropped. A record with their number
// follows those that wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/log_record.h"
#include "csrc/base/mutex.h"

namespace pccl {

class LogQueue {
 public:
  static constexpr size_t kRecordsMax = 1024;

  void open();
  // Returns what waits. take() returns at once from now on.
  std::vector<LogRecord> close();
  // Returns whether the queue is open, and so has the record or has counted it. Never blocks.
  bool push(const LogRecord& record);
  // Waits until there is a record or the queue is closed, but no longer than `limit`. Returns all
  // records that wait.
  std::vector<LogRecord> take(Duration limit);

 private:
  std::vector<LogRecord> all() PCCL_REQUIRES(mutex_);

  Mutex mutex_;
  Condition changed_;
  bool open_ PCCL_GUARDED_BY(mutex_) = false;
  std::deque<LogRecord> records_ PCCL_GUARDED_BY(mutex_);
  uint64_t dropped_ PCCL_GUARDED_BY(mutex_) = 0;  // since the last take()
  // of the last one that was dropped
  std::chrono::milliseconds dropped_at_ PCCL_GUARDED_BY(mutex_){0};
};

}  // namespace pccl
