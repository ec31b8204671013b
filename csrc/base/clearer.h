// Clearer: has the system clear fresh pages ahead of who is going to write to them. A page that is
// touched for the first time holds up its writer, and the data loop has more to do than wait: 0.1 s
// a GiB as a rule, 4 s in a guest whose host has to find the memory first. A thread of its own,
// from the first add() on; methods may be called from one other.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <span>
#include <thread>

namespace pccl {

class Clearer {
 public:
  Clearer() = default;
  ~Clearer();
  Clearer(const Clearer&) = delete;
  Clearer& operator=(const Clearer&) = delete;

  // Huge pages that nobody has touched yet: from the first to the last, as long as it takes.
  // Touching them meanwhile does no harm.
  void add(std::span<std::byte> pages);
  // They are about to be unmapped: not touched any more when this returns. Waits for a page.
  void forget(std::span<const std::byte> pages);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::span<std::byte>> waiting_;
  std::span<std::byte> current_;  // the page being cleared; empty: none is
  bool over_ = false;
  std::thread thread_;
};

}  // namespace pccl
