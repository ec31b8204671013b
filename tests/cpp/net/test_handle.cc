#include "csrc/net/handle.h"

#include "tests/cpp/net/net_test.h"

namespace pccl::net {
namespace {

using std::chrono::milliseconds;

// Runs `what` on the loop and waits for it.
void run_on(Loop& loop, const std::function<void()>& what) {
  on(loop, [&] {
    what();
    return 0;
  });
}

struct Sockets {
  Sockets() {
    const auto [first, second] = connected_fds();
    mine = Socket(first);
    other = Socket(second);
  }
  Socket mine, other;
};

TEST(Watcher, SaysWhatItIsAskedFor) {
  Sockets sockets;
  Loop loop("test");
  int readable = 0, writable = 0;
  std::shared_ptr<Watcher> watcher;
  run_on(loop, [&] {
    watcher = Watcher::open(loop.impl(), sockets.mine.fd(), [&](bool can_read, bool can_write) {
      readable += can_read;
      writable += can_write;
      watcher->watch(true, false);
    });
  });
  std::this_thread::sleep_for(milliseconds(10));
  run_on(loop, [&] {
    EXPECT_EQ(readable + writable, 0);  // no events before the first watch()
    watcher->watch(true, true);
  });
  EXPECT_TRUE(eventually(loop, [&] { return writable == 1; }));
  std::this_thread::sleep_for(milliseconds(10));
  run_on(loop, [&] {
    EXPECT_EQ(readable, 0);
    EXPECT_EQ(writable, 1);
    EXPECT_EQ(::send(sockets.other.fd(), "x", 1, 0), 1);
  });
  // Level-triggered: reported again and again.
  EXPECT_TRUE(eventually(loop, [&] { return readable > 3; }));
  run_on(loop, [&] { watcher->close(); });
}

TEST(Watcher, SaysAnErrorAsBoth) {
  Sockets sockets;
  Loop loop("test");
  bool both = false;
  std::shared_ptr<Watcher> watcher;
  run_on(loop, [&] {
    watcher = Watcher::open(loop.impl(), sockets.mine.fd(), [&](bool can_read, bool can_write) {
      both = can_read && can_write;
      watcher->close();
    });
    watcher->watch(true, false);
    const linger at_once{1, 0};
    setsockopt(sockets.other.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    sockets.other = Socket();
  });
  EXPECT_TRUE(eventually(loop, [&] { return watcher->closed(); }));
  EXPECT_TRUE(on(loop, [&] { return both; }));
}

// A closed descriptor's number may go to another socket in the same turn of the loop. The old
// handle must not be in its way.
TEST(Watcher, ADescriptorsNumberMayBeUsedAgainAtOnce) {
  Loop loop("test");
  run_on(loop, [&] {
    for (int i = 0; i < 100; ++i) {
      Sockets sockets;
      auto watcher = Watcher::open(loop.impl(), sockets.mine.fd(), [](bool, bool) {});
      watcher->watch(true, true);
      watcher->close();
    }
  });
}

TEST(Handle, ClosedItCallsNobodyAndLetsGoOfWhatItHeld) {
  Loop loop("test");
  auto held = std::make_shared<int>(0);
  bool called = false;
  run_on(loop, [&] {
    auto alarm = Alarm::open(loop.impl(), [held, &called] { called = true; });
    alarm->arm(monotonic_now());
    alarm->close();
    alarm->close();
    alarm->arm(monotonic_now());
    EXPECT_TRUE(alarm->closed());
  });
  EXPECT_TRUE(eventually(loop, [&] { return held.use_count() == 1; }));
  EXPECT_FALSE(called);
}

TEST(Handle, ALoopThatEndsClosesWhatIsOpen) {
  Sockets sockets;
  auto held = std::make_shared<int>(0);
  std::shared_ptr<Watcher> watcher;
  std::shared_ptr<Alarm> alarm;
  std::shared_ptr<BusyPoll> busy_poll;
  {
    Loop loop("test");
    run_on(loop, [&] {
      watcher = Watcher::open(loop.impl(), sockets.mine.fd(), [held](bool, bool) {});
      watcher->watch(true, false);
      alarm = Alarm::open(loop.impl(), [held] {});
      alarm->arm(monotonic_now() + std::chrono::hours(1));
      busy_poll = BusyPoll::open(loop.impl());
      busy_poll->keep(std::chrono::hours(1));
    });
  }
  EXPECT_TRUE(watcher->closed() && alarm->closed() && busy_poll->closed());
  EXPECT_EQ(held.use_count(), 1);
  watcher->watch(true, true);
  watcher->close();
  alarm->disarm();
  alarm->close();
  busy_poll->keep(std::chrono::hours(1));
  busy_poll->close();
}

// Other processes may have the core meanwhile, so the CPU time used in a given time proves nothing.
TEST(BusyPoll, KeepsTheThreadAwakeForItsTimeAndLetsOthersBeCalled) {
  Loop loop("test");
  const clockid_t clock = on(loop, [] {
    clockid_t id{};
    pthread_getcpuclockid(pthread_self(), &id);
    return id;
  });
  const auto cpu_time = [clock] {  // of the loop's thread, read without waking it
    timespec time{};
    clock_gettime(clock, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  std::shared_ptr<BusyPoll> busy_poll;
  run_on(loop, [&] {
    busy_poll = BusyPoll::open(loop.impl());
    busy_poll->keep(std::chrono::hours(1));
  });
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto before = cpu_time();
  while (cpu_time() - before < milliseconds(5)) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit) << "it sleeps";
    std::this_thread::yield();
  }
  run_on(loop, [&] { busy_poll->keep(milliseconds(1)); });
  std::this_thread::sleep_for(
      // Twice the time of keep(): it is over, whichever process has the core.
      milliseconds(2));
  run_on(loop, [] {});
  const auto after = cpu_time();
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_LT(cpu_time() - after, milliseconds(5)) << "it sleeps again";
  run_on(loop, [&] { busy_poll->close(); });
}

// A Deferred acts once when the current callback has ended, however often it was requested.
struct Counter : Deferred {
  void run_deferred() override {
    ++count;
    if (again) again();
  }
  int count = 0;
  std::function<void()> again;
};

TEST(Deferred, ActsWhenTheCallbackIsOver) {
  Loop loop("test");
  auto counter = std::make_shared<Counter>();
  run_on(loop, [&] {
    loop.impl()->defer(counter);
    loop.impl()->defer(counter);
    EXPECT_EQ(counter->count, 0);
  });
  EXPECT_EQ(on(loop, [&] { return counter->count; }), 1);
}

TEST(Deferred, RepeatedRequestsDoNotDelayOthers) {
  Loop loop("test");
  auto counter = std::make_shared<Counter>();
  counter->again = [&] { loop.impl()->defer(counter); };
  run_on(loop, [&] { loop.impl()->defer(counter); });
  EXPECT_TRUE(eventually(loop, [&] { return counter->count > 1000; }));
  run_on(loop, [&] { counter->again = nullptr; });
}

}  // namespace
}  // namespace pccl::net
