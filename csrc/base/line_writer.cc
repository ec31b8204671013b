// Normal case: push() appends the line and wakes the thread, which takes one line after the other
// and writes it with one call, so that lines of several processes do not mix.
// Failure: the reader does not read, so write() blocks the thread, and the queue fills up.

#include "csrc/base/line_writer.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "csrc/base/mutex.h"

namespace pccl {
namespace {

// Returns how many bytes were written; 0 after an error.
size_t write_some(int fd, std::string_view text) {
  ssize_t written = 0;
  do {
    written = ::write(fd, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  return static_cast<size_t>(std::max<ssize_t>(written, 0));
}

// Waits until `fd` accepts bytes or is broken, and returns true. Returns false after
// `milliseconds`. -1: waits without a limit.
bool is_writable(int fd, int milliseconds) {
  pollfd asked{fd, POLLOUT, 0};
  return poll(&asked, 1, milliseconds) > 0;
}

// Writes all bytes, or stops at an error.
void write_line(int fd, std::string_view line) {
  while (!line.empty()) {
    const size_t written = write_some(fd, line);
    line.remove_prefix(written);
    if (written > 0) continue;
    // Another program that shares the descriptor may have made it non-blocking.
    if (errno != EAGAIN || !is_writable(fd, -1)) return;
  }
}

}  // namespace

struct LineWriter::Queue {
  Queue(int to, Report makes) : fd(to), report(makes) {}
  void append(std::string line) PCCL_REQUIRES(mutex) {
    bytes += line.size();
    lines.push_back(std::move(line));
  }
  void append_report() PCCL_REQUIRES(mutex) { append(report(std::exchange(dropped, 0))); }
  bool is_written() const PCCL_REQUIRES(mutex) { return lines.empty() && dropped == 0 && !writing; }
  void run();

  const int fd;
  const Report report;
  bool has_thread = false;  // constant after construction
  Mutex mutex;
  Condition pushed, written;
  std::deque<std::string> lines PCCL_GUARDED_BY(mutex);
  // Bytes of the queued lines and of the line that the thread is writing.
  size_t bytes PCCL_GUARDED_BY(mutex) = 0;
  uint64_t dropped PCCL_GUARDED_BY(mutex) = 0;
  bool writing PCCL_GUARDED_BY(mutex) = false;
  bool over PCCL_GUARDED_BY(mutex) = false;
};

void LineWriter::Queue::run() {
  pthread_setname_np(pthread_self(), "pccl-log");
  Lock lock(mutex);
  while (true) {
    while (!over && lines.empty() && dropped == 0) pushed.wait(lock);
    if (over) return;
    if (lines.empty()) append_report();
    const std::string line = std::move(lines.front());
    lines.pop_front();
    writing = true;
    lock.unlock();
    write_line(fd, line);
    lock.lock();
    writing = false;
    bytes -= line.size();
    if (is_written()) written.notify_all();
  }
}

LineWriter::LineWriter(int fd, Report report) : queue_(std::make_shared<Queue>(fd, report)) {
  // Signals are blocked so that no signal handler of the application runs on the new thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  queue_->has_thread = true;
  try {
    std::thread([queue = queue_] { queue->run(); }).detach();
  } catch (const std::system_error&) {
    queue_->has_thread = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LineWriter::~LineWriter() {
  {
    const Lock lock(queue_->mutex);
    queue_->over = true;
  }
  queue_->pushed.notify_all();
}

void LineWriter::push(std::string line) {
  if (!queue_->has_thread) return write_line(queue_->fd, line);
  {
    const Lock lock(queue_->mutex);
    const size_t room = queue_->dropped > 0 ? kBytesMax / 2 : kBytesMax;
    if (!queue_->lines.empty() && queue_->bytes + line.size() > room) {
      ++queue_->dropped;
      return;
    }
    if (queue_->dropped > 0) queue_->append_report();
    queue_->append(std::move(line));
  }
  queue_->pushed.notify_one();
}

bool LineWriter::flush(Duration limit) {
  Lock lock(queue_->mutex);
  const Instant deadline = monotonic_now() + limit;
  while (!queue_->is_written()) {
    if (!queue_->written.wait_until(lock, deadline)) return queue_->is_written();
  }
  return true;
}

// Writes at most PIPE_BUF bytes in each call: a pipe that poll() reports as writable accepts this
// number without blocking.
void write_before(Instant deadline, int fd, std::string_view text) {
  while (!text.empty()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - monotonic_now());
    if (!is_writable(fd, static_cast<int>(std::max<int64_t>(left.count(), 0)))) return;
    const size_t written = write_some(fd, text.substr(0, PIPE_BUF));
    text.remove_prefix(written);
    if (written == 0 && errno != EAGAIN) return;
  }
}

}  // namespace pccl
