#include "csrc/net/loop_share.h"

#include <atomic>

#include "tests/cpp/net/net_test.h"

namespace pccl::net {
namespace {

TEST(LoopShare, EndRunsWhatWasPostedBeforeThenItsTaskAndDropsTheRest) {
  const auto loop = std::make_shared<Loop>("test");
  LoopShare share(loop);
  std::string order;
  for (int i = 0; i < 3; ++i) share.post([&order] { order += "a"; });
  // The inner task comes after the end.
  std::promise<void> ending;
  share.post([&] {
    ending.get_future().wait();
    share.post([&order] { order += "x"; });
  });
  std::thread ender([&] { share.end([&order] { order += "b"; }); });
  loop->post([] {});
  ending.set_value();
  ender.join();
  auto token = std::make_shared<int>(0);
  share.post([&order, token] { order += "y"; });
  on(*loop, [] { return 0; });
  EXPECT_EQ(token.use_count(), 1);
  share.end([&order] { order += "z"; });
  EXPECT_EQ(order.substr(0, 3), "aaa");
  EXPECT_EQ(order.find_first_of("yz"), std::string::npos) << order;
  EXPECT_EQ(order.back(), 'b') << order;
}

TEST(LoopShare, TheLoopEndsWithTheLastShare) {
  auto loop = std::make_shared<Loop>("test");
  const std::weak_ptr<Loop> alive = loop;
  LoopShare one(loop), other(std::move(loop));
  one.end({});
  EXPECT_FALSE(alive.expired());
  bool ran = false;
  other.post([&] { ran = other.on_loop(); });
  other.end([] {});
  EXPECT_TRUE(ran);
  EXPECT_TRUE(alive.expired());
  EXPECT_FALSE(one.on_loop());
}

TEST(LoopShare, ManyOwnersEndWhileOthersPost) {
  auto loop = std::make_shared<Loop>("test");
  std::vector<std::thread> owners;
  std::atomic<int> ended{0};
  for (int i = 0; i < 4; ++i) {
    owners.emplace_back([loop, &ended] {
      for (int round = 0; round < 50; ++round) {
        auto mine = std::make_unique<int>(0);
        LoopShare share(loop);
        for (int j = 0; j < 20; ++j) share.post([raw = mine.get()] { ++*raw; });
        share.end([&] {
          EXPECT_EQ(*mine, 20);
          mine.reset();
          ++ended;
        });
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  EXPECT_EQ(ended, 200);
}

TEST(LoopShare, InAForkedChildItDoesNothing) {
  LoopShare share(std::make_shared<Loop>("test"));
  const pid_t child = fork();
  if (child == 0) {
    share.post([] { _exit(1); });
    share.end([] { _exit(2); });
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  share.end({});
}

}  // namespace
}  // namespace pccl::net
