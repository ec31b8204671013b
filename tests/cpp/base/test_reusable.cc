#include "csrc/base/reusable.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace pccl {
namespace {

TEST(Reusable, IsThereOnceItIsGivenBack) {
  Reusable<std::vector<int>> list;
  EXPECT_EQ(list.idle(), nullptr) << "there is none yet";
  list.emplace(3u, 7);
  auto lent = list.lend();
  EXPECT_EQ(*lent, (std::vector<int>{7, 7, 7}));
  EXPECT_EQ(list.idle(), nullptr);
  auto copy = lent;
  lent.reset();
  EXPECT_EQ(list.idle(), nullptr) << "a copy is left";
  const auto* const was = copy.get();
  copy.reset();
  EXPECT_EQ(list.idle(), was) << "the same again";
  EXPECT_EQ(list.lend().get(), was);
}

TEST(Reusable, AReplacedObjectStaysWithItsUser) {
  Reusable<int> number;
  number.emplace(1);
  const auto first = number.lend();
  number.emplace(2);
  EXPECT_EQ(*number.lend(), 2);
  EXPECT_EQ(*first, 1);
  EXPECT_NE(number.idle(), nullptr) << "the old one does not count";
}

TEST(Reusable, OutlivesItsOwner) {
  std::shared_ptr<int> lent;
  {
    Reusable<int> number;
    number.emplace(5);
    lent = number.lend();
  }
  EXPECT_EQ(*lent, 5);
}

// The thread sanitizer sees whether the owner waits for the user rightly.
TEST(Reusable, TheOwnerSeesWhatTheLastUserDid) {
  Reusable<int> number;
  number.emplace(0);
  for (int turn = 0; turn < 200; ++turn) {
    std::thread user([lent = number.lend()]() mutable {
      ++*lent;
      lent.reset();
    });
    while (number.idle() == nullptr) std::this_thread::yield();
    EXPECT_EQ(*number.idle(), turn + 1);
    ++*number.idle();
    --*number.idle();
    user.join();
  }
}

}  // namespace
}  // namespace pccl
