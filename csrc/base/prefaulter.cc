#include "csrc/base/prefaulter.h"

#include <pthread.h>

#include <functional>
#include <system_error>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/base/pages.h"

namespace pccl {
namespace {

// Whether two ranges overlap. They may be parts of one mapping or of different ones.
bool overlap(std::span<const std::byte> one, std::span<const std::byte> other) {
  const std::less<const std::byte*> before;
  return before(one.data(), other.data() + other.size()) &&
         before(other.data(), one.data() + one.size());
}

}  // namespace

Prefaulter::~Prefaulter() {
  if (!thread_.joinable()) return;
  {
    const Lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefaulter::add(std::span<std::byte> pages) {
  PCCL_ASSERT(!pages.empty() && pages.size() % kHugePageBytes == 0);
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    return;  // no thread can be started: the thread that writes there waits for the system itself
  }
  const Lock lock(mutex_);
  waiting_.push_back(pages);
  changed_.notify_all();
}

void Prefaulter::forget(std::span<const std::byte> pages) {
  PCCL_ASSERT(!pages.empty() && pages.size() % kHugePageBytes == 0);
  Lock lock(mutex_);
  std::deque<std::span<std::byte>> left;
  for (const std::span<std::byte> range : waiting_) {
    if (!overlap(range, pages)) {
      left.push_back(range);
      continue;
    }
    // The parts of the range before and after `pages` stay.
    const std::byte* const end = pages.data() + pages.size();
    const std::less<const std::byte*> before;
    if (before(range.data(), pages.data()))
      left.push_back(range.first(static_cast<size_t>(pages.data() - range.data())));
    if (before(end, range.data() + range.size()))
      left.push_back(range.last(static_cast<size_t>(range.data() + range.size() - end)));
  }
  waiting_ = std::move(left);
  while (overlap(current_, pages)) changed_.wait(lock);
}

// Touches one page at a time, so that forget() does not wait for long.
void Prefaulter::run() {
  pthread_setname_np(pthread_self(), "pccl-clearer");
  Lock lock(mutex_);
  while (true) {
    while (!over_ && waiting_.empty()) changed_.wait(lock);
    if (over_) return;
    std::span<std::byte>& first = waiting_.front();
    PCCL_ASSERT(current_.empty());
    PCCL_ASSERT(!first.empty() && first.size() % kHugePageBytes == 0);
    const std::span<std::byte> page = current_ = first.first(kHugePageBytes);
    first = first.subspan(kHugePageBytes);
    if (first.empty()) waiting_.pop_front();
    lock.unlock();
    prefault(page.data(), page.size());
    lock.lock();
    current_ = {};
    changed_.notify_all();
  }
}

}  // namespace pccl
