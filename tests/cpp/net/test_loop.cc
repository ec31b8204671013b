#include "csrc/net/loop.h"

#include <sys/resource.h>
#include <uv.h>

#include <algorithm>
#include <atomic>

#include "tests/cpp/net/net_test.h"

namespace pccl::net {
namespace {

using std::chrono::milliseconds;

TEST(Loop, RunsTasksInOrderOnItsOwnThread) {
  Loop loop("test");
  ASSERT_TRUE(loop.status().ok());
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) loop.post([&order, i] { order.push_back(i); });
  EXPECT_FALSE(loop.on_loop());
  EXPECT_TRUE(on(loop, [&] { return loop.on_loop(); }));
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(LoopDeathTest, ItsOwnThreadOnlyMayUseIt) {
  Loop loop("owner");
  auto timer = on(loop, [&] {
    loop.assert_on_loop();
    return std::make_unique<Timer>(loop, [] {});
  });
  const std::string text = "assertion failed: called on the thread owner ";
  EXPECT_DEATH(loop.assert_on_loop(), text + "\\(.*test_loop.cc:");
  EXPECT_DEATH(timer->arm(monotonic_now()), text + "\\(.*handle.cc:");
  on(loop, [&] { return timer.reset(), true; });
}

TEST(Loop, ManyThreadsMayPost) {
  Loop loop("test");
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) loop.post([&count] { ++count; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(on(loop, [&] { return count; }), 2000);
}

TEST(Loop, ATaskThatItPostsItselfNeedsNoWakeUp) {
  Loop loop("test");
  std::vector<int> order;
  std::promise<void> entered, posted;
  loop.post([&] {
    entered.set_value();
    posted.get_future().wait();
    loop.post([&order] { order.push_back(1); });
  });
  entered.get_future().wait();
  loop.post([&order] { order.push_back(2); });
  posted.set_value();
  EXPECT_EQ(on(loop, [&] { return order; }), (std::vector<int>{1, 2}));
}

TEST(Loop, TasksThatItPostsItselfDoNotKeepOthersOut) {
  Loop loop("test");
  bool over = false;
  std::function<void()> again = [&] {
    if (!over) loop.post(again);
  };
  loop.post(again);
  EXPECT_TRUE(on(loop, [&] { return over = true; }));
  loop.stop();  // the last copy of the task reads variables of this function
}

// libuv destroys what a handle has captured between two turns, after all callbacks.
TEST(Loop, ATaskThatIsPostedBetweenTwoTurnsRuns) {
  Loop loop("test");
  std::promise<void> ran;
  on(loop, [&] {
    const std::shared_ptr<void> last(nullptr,
                                     [&](void*) { loop.post([&ran] { ran.set_value(); }); });
    Timer(loop, [last] {});
    return 0;
  });
  EXPECT_EQ(ran.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(Loop, StopRunsWhatWasPostedBeforeAndDropsTheRest) {
  int ran = 0;
  auto token = std::make_shared<int>(0);
  Loop loop("test");
  for (int i = 0; i < 100; ++i) loop.post([&ran] { ++ran; });
  // The inner task comes in time or too late, by chance.
  loop.post([&loop, &ran] { loop.post([&ran] { ran += 1000; }); });
  loop.stop();
  EXPECT_EQ(ran % 1000, 100);
  loop.post([&ran, token] { ran = -1; });
  EXPECT_EQ(token.use_count(), 1);
  loop.stop();
  EXPECT_GE(ran, 100);
}

TEST(Loop, TwoThreadsMayStopItWhileAThirdPosts) {
  for (int i = 0; i < 20; ++i) {
    Loop loop("test");
    std::thread poster([&] {
      for (int j = 0; j < 200; ++j) loop.post([] {});
    });
    std::thread stopper([&] { loop.stop(); });
    loop.stop();
    stopper.join();
    poster.join();
  }
}

TEST(Loop, ItsThreadHasItsNameAndLeavesSignalsAlone) {
  Loop loop("a name that is too long");
  char name[32] = "";
  sigset_t blocked;
  on(loop, [&] {
    pthread_getname_np(pthread_self(), name, sizeof name);
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return 0;
  });
  EXPECT_STREQ(name, "a name that is ");
  EXPECT_TRUE(sigismember(&blocked, SIGINT));
  EXPECT_FALSE(sigismember(&blocked, SIGSEGV));
}

TEST(Loop, StopDoesNotWaitForTheResolver) {
  Loop loop("test");
  static std::atomic<bool> done;
  done = false;  // an earlier test run in this process may have set it
  on(loop, [&] {
    auto* work = new uv_work_t;  // stands for a name that no server answers for
    return uv_queue_work(
        loop.raw(), work,
        [](uv_work_t*) {
          std::this_thread::sleep_for(milliseconds(500));
          done = true;
        },
        nullptr);
  });
  loop.stop();
  EXPECT_FALSE(done);
  while (!done) std::this_thread::sleep_for(milliseconds(10));
  std::this_thread::sleep_for(milliseconds(50));  // the resolver's thread reports to the loop
}

TEST(Loop, WithoutDescriptorsItSaysSo) {
  const int result = in_child([] {
    const rlimit none{3, 3};
    setrlimit(RLIMIT_NOFILE, &none);
    Loop loop("starved");
    loop.post([] {});
    loop.stop();
    const std::string expected = "cannot start thread starved: too many open files";
    return loop.status() == Status{Code::kSystem, expected, {}} ? 0 : 1;
  });
  EXPECT_EQ(result, 0);
}

TEST(Loop, InAForkedChildNothingHangs) {
  auto loop = std::make_unique<Loop>("test");
  std::unique_ptr<Timer> timer;
  on(*loop, [&] { return (timer = std::make_unique<Timer>(*loop, [] {})) != nullptr; });
  const int result = in_child([&] {
    loop->post([] { _exit(1); });
    loop->stop();
    timer.reset();
    loop.reset();
    return 0;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(on(*loop, [] { return 7; }), 7);
  on(*loop, [&] {
    timer.reset();
    return 0;
  });
}

TEST(Timer, NeverComesEarly) {
  Loop loop("test");
  std::atomic<bool> stop{false};
  std::thread waker([&] {  // each wakeup makes the loop check its timers
    while (!stop) {
      loop.post([] {});
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  Duration least_late = std::chrono::seconds(1);  // a busy machine delays some timers, but not all
  for (int i = 0; i < 60; ++i) {
    const Duration wait{i * 70'000};  // 0 to 4 ms
    const Instant at = monotonic_now() + wait;
    std::promise<Instant> fired;
    std::unique_ptr<Timer> timer;
    loop.post([&] {
      timer = std::make_unique<Timer>(loop, [&] { fired.set_value(monotonic_now()); });
      timer->arm(at);
    });
    const Instant came = fired.get_future().get();
    EXPECT_GE(came, at);
    least_late = std::min(least_late, came - at);
    on(loop, [&] {
      timer.reset();
      return 0;
    });
  }
  EXPECT_LT(least_late, milliseconds(20));
  stop = true;
  waker.join();
}

TEST(Timer, ArmingReplacesAndDisarmingCancels) {
  Loop loop("test");
  int fired = 0;
  bool later = false;
  std::unique_ptr<Timer> timer, other, last;
  on(loop, [&] {
    timer = std::make_unique<Timer>(loop, [&] { ++fired; });
    timer->arm(monotonic_now() + milliseconds(1));
    timer->arm(monotonic_now() + std::chrono::hours(1));
    other = std::make_unique<Timer>(loop, [&] { fired += 100; });
    other->arm(monotonic_now() + milliseconds(1));
    other->disarm();
    last = std::make_unique<Timer>(loop, [&] { later = true; });
    last->arm(monotonic_now() + milliseconds(5));
    return 0;
  });
  EXPECT_TRUE(eventually(loop, [&] { return later; }));
  EXPECT_EQ(on(loop, [&] { return fired; }), 0);
  on(loop, [&] {
    timer->arm(monotonic_now());
    return 0;
  });
  EXPECT_TRUE(eventually(loop, [&] { return fired == 1; }));
  on(loop, [&] {
    timer.reset();
    other.reset();
    last.reset();
    return 0;
  });
}

TEST(Timer, MayArmAndDestroyItselfInItsCallback) {
  Loop loop("test");
  int fired = 0;
  std::unique_ptr<Timer> timer;
  on(loop, [&] {
    timer = std::make_unique<Timer>(loop, [&] {
      if (++fired < 5) return timer->arm(monotonic_now());
      timer.reset();
    });
    timer->arm(monotonic_now());
    return 0;
  });
  EXPECT_TRUE(eventually(loop, [&] { return fired == 5 && timer == nullptr; }));
}

TEST(Timer, MayOutliveItsLoop) {
  std::unique_ptr<Timer> timer;
  {
    Loop loop("test");
    on(loop, [&] {
      timer = std::make_unique<Timer>(loop, [] {});
      timer->arm(monotonic_now() + std::chrono::hours(1));
      return 0;
    });
  }
  timer->arm(monotonic_now());
  timer.reset();
}

}  // namespace
}  // namespace pccl::net
