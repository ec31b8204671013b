// Prefaulter: the page prefaulter. It touches fresh memory pages ahead of the thread that will
// write to them, so that the system clears them early. Otherwise the first write to a page waits
// for that: 0.1 s per GiB normally, 4 s per GiB in a guest whose host must find the memory first.
// The peer loop should not wait that long. It has its own thread, from the first add() on. Only one
// other thread may call its methods. Failure: if no thread can be started, it does nothing, and the
// writer waits.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <thread>

#include "csrc/base/mutex.h"

namespace pccl {

class Prefaulter {
 public:
  Prefaulter() = default;
  ~Prefaulter();
  Prefaulter(const Prefaulter&) = delete;
  Prefaulter& operator=(const Prefaulter&) = delete;

  // Queues fresh huge pages. They are touched from the first to the last, for as long as it takes.
  // Other threads may touch them meanwhile.
  void add(std::span<std::byte> pages);
  // Call it before `pages` are unmapped: they are not touched any more when it returns. It waits
  // for at most one page.
  void forget(std::span<const std::byte> pages);

 private:
  void run();

  Mutex mutex_;
  Condition changed_;
  std::deque<std::span<std::byte>> waiting_ PCCL_GUARDED_BY(mutex_);
  // The page being touched; empty: none.
  std::span<std::byte> current_ PCCL_GUARDED_BY(mutex_);
  bool over_ PCCL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace pccl
