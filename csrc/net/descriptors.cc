#include "csrc/net/descriptors.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/base/assert.h"

namespace pccl::net {
namespace {

constexpr int kDescriptorsMax = 1 << 20;  // no system allows a process more by default
constexpr int kBitsPerWord = 64;

// Static, initially zero and never destroyed, because it must outlive every thread. Its untouched
// pages use no memory.
std::atomic<uint64_t> g_open[kDescriptorsMax / kBitsPerWord];
std::atomic<size_t> g_words_used{0};
std::atomic<unsigned> g_fork_count{0};
pthread_mutex_t g_making = PTHREAD_MUTEX_INITIALIZER;
thread_local bool t_guards = false;  // this thread has a ForkGuard

void before_fork() { pthread_mutex_lock(&g_making); }
void after_fork_in_parent() { pthread_mutex_unlock(&g_making); }

void after_fork_in_child() {
  g_fork_count.fetch_add(1, std::memory_order_relaxed);
  const size_t words = g_words_used.load(std::memory_order_relaxed);
  for (size_t word = 0; word < words; ++word) {
    uint64_t open = g_open[word].exchange(0, std::memory_order_relaxed);
    for (; open != 0; open &= open - 1) {
      ::close(static_cast<int>(word * kBitsPerWord) + std::countr_zero(open));
    }
  }
  pthread_mutex_unlock(&g_making);
}

void watch_forks() {
  static const int result = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  PCCL_ASSERT(result == 0);
}

}  // namespace

// A new descriptor gets the lowest free number. The descriptors 0 to 2 stay open in programs that
// this process starts, as if they had never been closed.
void open_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd >= 0) ::close(fd);
}

size_t descriptors_max() {
  rlimit files{};
  const bool known = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY;
  return known ? files.rlim_cur : size_t{kDescriptorsMax};
}

// Opens `count` descriptors and closes them again. The highest open number is no measure, because
// the numbers of open descriptors may have gaps.
bool has_room(size_t count) {
  const ForkGuard guard;
  std::vector<int> opened;
  while (opened.size() < count) {
    const int fd = opened.empty() ? open("/dev/null", O_RDONLY | O_CLOEXEC)
                                  : fcntl(opened[0], F_DUPFD_CLOEXEC, 0);
    if (fd < 0) break;
    opened.push_back(fd);
  }
  for (const int fd : opened) ::close(fd);
  return opened.size() == count;
}

size_t pending_max(size_t wanted) { return std::clamp<size_t>(descriptors_max() / 4, 1, wanted); }

bool is_scarce(int fd, size_t more) {
  const size_t max = descriptors_max();
  const size_t kept = std::min(kLeftToApplication + more, max / 4);
  return fd >= 0 && static_cast<size_t>(fd) + kept >= max;
}

unsigned fork_count() {
  watch_forks();
  return g_fork_count.load(std::memory_order_relaxed);
}

ForkGuard::ForkGuard() {
  PCCL_ASSERT(!t_guards);  // it would wait for itself
  watch_forks();
  pthread_mutex_lock(&g_making);
  t_guards = true;
}
ForkGuard::~ForkGuard() {
  t_guards = false;
  pthread_mutex_unlock(&g_making);
}

void remember_descriptor(int fd) {
  watch_forks();
  if (fd < 0 || fd >= kDescriptorsMax) return;
  const size_t word = static_cast<size_t>(fd) / kBitsPerWord;
  g_open[word].fetch_or(uint64_t{1} << (fd % kBitsPerWord), std::memory_order_relaxed);
  size_t used = g_words_used.load(std::memory_order_relaxed);
  while (used <= word && !g_words_used.compare_exchange_weak(used, word + 1)) {
  }
}

void close_descriptor(int fd) {
  const ForkGuard guard;
  if (fd < kDescriptorsMax) {
    const size_t word = static_cast<size_t>(fd) / kBitsPerWord;
    g_open[word].fetch_and(~(uint64_t{1} << (fd % kBitsPerWord)), std::memory_order_relaxed);
  }
  ::close(fd);
}

}  // namespace pccl::net
