#include "csrc/peer/shell/waiter.h"

#include <gtest/gtest.h>

#include <new>
#include <thread>

namespace pccl::peer {
namespace {

FinishJoint result(Handle handle) {
  FinishJoint out;
  out.handle = handle;
  return out;
}

TEST(Waiter, ReturnsTheEnd) {
  Waiter waiter;
  std::thread loop([&] { waiter.finish(result(7)); });
  EXPECT_EQ(waiter.wait({})->handle, 7u);
  loop.join();
}

TEST(Waiter, WorksWhileItWaits) {
  Waiter waiter;
  std::thread::id worker;
  std::thread loop([&] {
    waiter.work([&] {
      worker = std::this_thread::get_id();
      waiter.finish(result(7));  // the caller holds no lock while it works
    });
  });
  EXPECT_EQ(waiter.wait({})->handle, 7u);
  loop.join();
  EXPECT_EQ(worker, std::this_thread::get_id());
}

TEST(Waiter, AsksWhetherItIsInterrupted) {
  Waiter waiter;
  int asked = 0;
  EXPECT_FALSE(waiter.wait([&] { return ++asked == 3; }).has_value());
  EXPECT_EQ(asked, 3);
  waiter.finish(result(7));
  EXPECT_EQ(waiter.wait([] { return true; })->handle, 7u);  // a finished result takes precedence
}

TEST(Waiter, PostedTasksRunBeforeTheEnd) {
  Waiter waiter;
  int told = 0;
  waiter.tell([&] { ++told; });
  waiter.finish(result(7));
  waiter.tell([] { ADD_FAILURE() << "it came too late"; });
  EXPECT_EQ(waiter.wait({})->handle, 7u);
  EXPECT_EQ(told, 1);
}

TEST(Waiter, AfterATaskThatThrowsNoneIsRun) {
  Waiter waiter;
  waiter.work([] { throw std::bad_alloc(); });
  EXPECT_THROW(waiter.wait({}), std::bad_alloc);
  waiter.tell([] { ADD_FAILURE(); });
  std::thread loop([&] { waiter.finish(result(7)); });
  EXPECT_EQ(waiter.end().handle, 7u);
  loop.join();
}

TEST(Waiter, NothingIsWorkedAfterTheEnd) {
  Waiter waiter;
  waiter.work([] { ADD_FAILURE(); });
  waiter.finish(result(7));
  waiter.work([] { ADD_FAILURE(); });
  EXPECT_EQ(waiter.wait({})->handle, 7u);
}

TEST(WaiterDeathTest, ACallEndsOnce) {
  Waiter waiter;
  waiter.finish(result(7));
  EXPECT_DEATH(waiter.finish(result(7)), "assertion failed: !result_");
}

}  // namespace
}  // namespace pccl::peer
