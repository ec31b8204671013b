// Prefaulter: the page prefaulter. It touches fresh memory pages ahead of the thread that will
// write to them, so that the system clears the pages early. Otherwise the first write to a page
// waits until the page is cleared: 0.1 s per GiB normally, 4 s per GiB in a guest whose host must
// find the memory first. The peer loop should not wait that long. The prefaulter starts a thread of
// its own at the first add(). Only one other thread may call its methods. Failure: if no thread can
// be started, the prefaulter does nothing, and the first write to each page waits.
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

  // Queues fresh huge pages. The thread touches them from the first to the last, however long that
  // takes. Other threads may touch them meanwhile.
  void add(std::span<std::byte> pages);
  // Call it before `pages` are unmapped. When it returns, the prefaulter does not touch them any
  // more. If the thread is touching one of them, forget() waits until that page is done.
  void forget(std::span<const std::byte> pages);

 private:
  void run();

  Mutex mutex_;
  Condition changed_;
  std::deque<std::span<std::byte>> waiting_ PCCL_GUARDED_BY(mutex_);
  // The page that the thread is touching; empty: none.
  std::span<std::byte> current_ PCCL_GUARDED_BY(mutex_);
  bool over_ PCCL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace pccl
