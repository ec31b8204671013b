#include "master/epochs/latecomers.h"

#include <gtest/gtest.h>

namespace pccl::master {
namespace {

using std::chrono::milliseconds;

constexpr PeerId kQuick{1}, kSlow{2};

// Operations that begin every second. The member `last` calls `late` after the others.
class LatecomersTest : public ::testing::Test {
 protected:
  void operations(size_t count, PeerId last, Duration late) {
    for (size_t i = 0; i < count; ++i) {
      now_ = now_ + std::chrono::seconds(1);
      latecomers_.count(now_ + late, {last, now_, now_, now_ + late});
    }
  }

  Instant now_;
  Latecomers latecomers_;
};

TEST_F(LatecomersTest, AMemberThatIsMostlyLastAndCostsAFifthIsSlow) {
  operations(9, kQuick, milliseconds(2));
  operations(11, kSlow, milliseconds(500));
  const auto slow = latecomers_.slow();
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->who, kSlow);
  EXPECT_EQ(slow->times, 11u);
  EXPECT_EQ(slow->cost, milliseconds(5500));
  EXPECT_EQ(slow->over, milliseconds(19500));
}

TEST_F(LatecomersTest, FewerThanTwentyOperationsShowNothing) {
  operations(19, kSlow, milliseconds(500));
  EXPECT_FALSE(latecomers_.slow());
  operations(1, kSlow, milliseconds(500));
  EXPECT_TRUE(latecomers_.slow());
}

TEST_F(LatecomersTest, AMemberThatIsLastInHalfOfThemIsNotSlow) {
  operations(10, kQuick, milliseconds(500));
  operations(10, kSlow, milliseconds(800));
  EXPECT_FALSE(latecomers_.slow());
}

TEST_F(LatecomersTest, LessThanAFifthOfTheTimeIsNoFault) {
  operations(20, kSlow, milliseconds(150));
  EXPECT_FALSE(latecomers_.slow());
}

TEST_F(LatecomersTest, LessThanASecondIsNoFault) {
  for (int i = 0; i < 20; ++i) {
    now_ = now_ + milliseconds(60);
    latecomers_.count(now_ + milliseconds(45), {kSlow, now_, now_, now_ + milliseconds(45)});
  }
  EXPECT_FALSE(latecomers_.slow());
  for (int i = 0; i < 20; ++i) {
    now_ = now_ + milliseconds(60);
    latecomers_.count(now_ + milliseconds(55), {kSlow, now_, now_, now_ + milliseconds(55)});
  }
  EXPECT_TRUE(latecomers_.slow());
}

TEST_F(LatecomersTest, CallsInWhichNobodyIsLateDoNotCount) {
  for (int i = 0; i < 5; ++i) {  // a step: one call after the computation, and three at once
    operations(1, kSlow, std::chrono::seconds(3));
    operations(3, kQuick, std::chrono::microseconds(100));
  }
  const auto slow = latecomers_.slow();
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->times, 5u);
  EXPECT_EQ(slow->cost, std::chrono::seconds(15));
}

TEST_F(LatecomersTest, OnlyTheLastTwentyCount) {
  operations(20, kSlow, milliseconds(500));
  operations(10, kQuick, milliseconds(1));
  EXPECT_FALSE(latecomers_.slow());
}

}  // namespace
}  // namespace pccl::master
