#include "csrc/net/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>

#include "tests/cpp/net/net_test.h"

namespace pccl::net {
namespace {

// Whether the descriptor is /dev/null, not only open. In a process that has had a loop, libuv makes
// a pipe in each forked child, and that pipe takes free descriptor numbers.
bool is_null(int fd) {
  using Stat = struct stat;
  Stat opened{}, null{};
  return fstat(fd, &opened) == 0 && stat("/dev/null", &null) == 0 &&
         opened.st_rdev == null.st_rdev && S_ISCHR(opened.st_mode);
}

TEST(Descriptors, AChildClosesThemAndNothingElse) {
  const int ours = ::open("/dev/null", O_RDONLY);
  const int other = ::open("/dev/null", O_RDONLY);
  const int high = fcntl(ours, F_DUPFD, 900);
  const unsigned before = fork_count();
  remember_descriptor(ours);
  remember_descriptor(high);
  EXPECT_EQ(in_child([&] {
              const bool right = !is_null(ours) && !is_null(high) && is_null(other);
              return right && fork_count() == before + 1 ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(is_null(ours) && is_null(high));
  EXPECT_EQ(fork_count(), before);
  close_descriptor(ours);
  close_descriptor(high);
  EXPECT_FALSE(is_null(ours));
  const int again = ::open("/dev/null", O_RDONLY);  // probably the same number, but not ours
  EXPECT_EQ(in_child([&] { return is_null(again) ? 0 : 1; }), 0);
  ::close(again);
  ::close(other);
}

TEST(DescriptorsDeathTest, AThreadThatDelaysForksDoesNotDelayThemOnceMore) {
  const auto close = [] {
    const ForkGuard guard;
    close_descriptor(1000);
  };
  EXPECT_DEATH(close(), "assertion failed: !t_guards");
}

// The result of `ask` in a child process whose descriptor limit is `descriptors`.
bool with_limit(rlim_t descriptors, const std::function<bool()>& ask) {
  return in_child([&] {
           const rlimit few{descriptors, descriptors};
           return setrlimit(RLIMIT_NOFILE, &few) == 0 && ask() ? 0 : 1;
         }) == 0;
}

TEST(Descriptors, TheStandardOnesAreOpenedIfTheyAreClosed) {
  EXPECT_EQ(in_child([] {
              const int other = ::open("/", O_RDONLY);
              ::close(STDIN_FILENO);
              ::close(STDERR_FILENO);
              dup2(other, STDOUT_FILENO);  // what is open stays
              open_standard_descriptors();
              const int next = ::open("/", O_RDONLY);
              const bool right = is_null(STDIN_FILENO) && !is_null(STDOUT_FILENO) &&
                                 is_null(STDERR_FILENO) && next == other + 1;
              open_standard_descriptors();
              const int after = ::open("/", O_RDONLY);
              return right && after == next + 1 ? 0 : 1;
            }),
            0);
}

TEST(Descriptors, RoomIsCountedWhereverItIs) {
  EXPECT_TRUE(with_limit(64, [] {
    std::vector<int> all;
    for (int fd = 0; fd >= 0; all.push_back(fd)) fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    const bool none = has_room(0) && !has_room(1);
    for (const int fd : {40, 50, 60}) ::close(fd);
    return none && has_room(3) && !has_room(4) && has_room(3);
  }));
}

TEST(Descriptors, PendingConnectionsHaveAQuarter) {
  EXPECT_TRUE(with_limit(1024, [] { return pending_max(320) == 256; }));
  EXPECT_TRUE(with_limit(1024, [] { return pending_max(100) == 100; }));
  EXPECT_TRUE(with_limit(256, [] { return pending_max(320) == 64; }));
}

TEST(Descriptors, AreScarceWhenTheApplicationHasNoMoreThanItsShare) {
  EXPECT_TRUE(with_limit(1024, [] { return !is_scarce(951, 8) && is_scarce(952, 8); }));
  EXPECT_TRUE(with_limit(100, [] { return !is_scarce(74, 8) && is_scarce(75, 8); }));
}

TEST(Descriptors, ForkWaitsForOneThatIsBeingMade) {
  std::promise<void> impl, forked;
  std::atomic<bool> made{false};
  std::thread maker([&] {
    {
      const ForkGuard guard;
      impl.set_value();
      // A fork that did not wait would come meanwhile. If this is too short, the test shows
      // nothing.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      made = true;
    }
    forked.get_future().wait();  // a thread that has just ended looks like a leak in the child
  });
  impl.get_future().get();
  EXPECT_EQ(in_child([&] { return made ? 0 : 1; }), 0);
  forked.set_value();
  maker.join();
}

}  // namespace
}  // namespace pccl::net
