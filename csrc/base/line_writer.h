// LineWriter: writes lines to a descriptor on a thread of its own, in the order of the push()
// calls. So no thread that pushes waits for the reader of the descriptor. That reader may read
// nothing: a paused terminal, a parent that ignores its pipe, a log collector that hangs.
// Any thread may call the methods, except in a child process that was forked after the constructor:
// the child does not have the thread.
// Bounded: if more than kBytesMax bytes wait, further lines are dropped until at most half of
// kBytesMax waits. One line with the number of dropped lines then takes their place.
// Failure: lines that the system refuses, for example because the reader is gone, are lost. If the
// thread cannot be started, push() writes the line itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/base/clock.h"

namespace pccl {

class LineWriter {
 public:
  static constexpr size_t kBytesMax = size_t{1} << 20;
  using Report = std::string (*)(uint64_t dropped);

  // `report` makes the line with the number of dropped lines. It must not call push().
  LineWriter(int fd, Report report);
  // Drops the lines that wait. The thread may still write the line that it has taken.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void push(std::string line);
  // Waits until all lines are written, but no longer than `limit`. Returns whether they are.
  bool flush(Duration limit);

 private:
  struct Queue;
  const std::shared_ptr<Queue> queue_;  // shared with the thread, which may outlive this object
};

// Writes `text` on the calling thread, until all is written, the deadline has passed or a write
// fails.
void write_before(Instant deadline, int fd, std::string_view text);

}  // namespace pccl
