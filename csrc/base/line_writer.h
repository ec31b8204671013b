// LineWriter: writes lines to a descriptor on a thread of its own, in the order of the push()
// calls. So no thread that pushes waits for the reader of the descriptor, which may read nothing: a
// paused terminal, a parent that ignores its pipe, a log collector that hangs.
// Any thread may call it, except in a child that was forked after its creation: the child does not
// have the thread.
// Bounded: if more than kBytesMax wait, further lines are dropped until half of that is written.
// Then a line with their number stands in their place.
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

  // `report`: makes the line with the number of the dropped ones. It must not push.
  LineWriter(int fd, Report report);
  // Lines that wait are lost. The thread may still write the present one.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void push(std::string line);
  // Waits until all lines are written, but no longer than `limit`. Returns whether they are.
  bool flush(Duration limit);

 private:
  struct Queue;
  const std::shared_ptr<Queue> queue_;  // the thread has it, too, and may be the last
};

// Writes `text` on this thread as far as the reader takes it before `deadline`.
void write_before(Instant deadline, int fd, std::string_view text);

}  // namespace pccl
