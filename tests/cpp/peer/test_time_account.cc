#include "csrc/peer/time_account.h"

#include <gtest/gtest.h>

namespace pccl::peer {
namespace {

using std::chrono::milliseconds;

constexpr PeerId kSlow{2};

Instant at(int ms) { return Instant{milliseconds(ms)}; }

TEST(TimeAccount, AWaitIsForTheLastCallerAndThenForTheData) {
  TimeAccount account(at(0));
  account.called(1, kSlow, at(70));
  account.waited(1, at(10), at(100));
  const TimeTotals totals = account.totals(at(200));
  EXPECT_EQ(totals.all, milliseconds(200));
  EXPECT_EQ(totals.waiting, milliseconds(60));
  EXPECT_EQ(totals.waiting_for.at(kSlow), milliseconds(60));
  EXPECT_EQ(totals.transferring, milliseconds(30));
  EXPECT_EQ(totals.computing(), milliseconds(110));
}

TEST(TimeAccount, AVerdictAfterTheWaitCountsLikeOneBefore) {
  TimeAccount account(at(0));
  account.waited(1, at(10), at(100));
  EXPECT_EQ(account.totals(at(100)).transferring, milliseconds(90)) << "meanwhile";
  account.called(1, kSlow, at(70));
  EXPECT_EQ(account.totals(at(100)).waiting, milliseconds(60));
  EXPECT_EQ(account.totals(at(100)).transferring, milliseconds(30));
}

TEST(TimeAccount, ALastCallBeforeTheWaitOrAfterItIsInItsBounds) {
  TimeAccount account(at(0));
  account.called(1, kSlow, at(5));
  account.waited(1, at(10), at(20));
  EXPECT_EQ(account.totals(at(20)).waiting, Duration{0});
  EXPECT_TRUE(account.totals(at(20)).waiting_for.empty());
  account.called(2, kSlow, at(99));
  account.waited(2, at(30), at(40));
  EXPECT_EQ(account.totals(at(40)).waiting, milliseconds(10));
}

TEST(TimeAccount, TheTimeOfAFailedOperationIsLostUnlessAVerdictNamesItsCause) {
  TimeAccount account(at(0));
  account.failed(1);
  account.waited(1, at(10), at(30));
  account.called(2, kSlow, at(60));
  account.failed(2);
  account.waited(2, at(40), at(60));
  EXPECT_EQ(account.totals(at(60)).failing, milliseconds(20));
  EXPECT_EQ(account.totals(at(60)).waiting, milliseconds(20));
}

TEST(TimeAccount, OtherThreadsAreApart) {
  TimeAccount account(at(0));
  account.waited_elsewhere(at(0), at(50));
  account.waited_in_joint_call(at(10), at(30));
  account.saved(milliseconds(5));
  const TimeTotals totals = account.totals(at(50));
  EXPECT_EQ(totals.elsewhere, milliseconds(50));
  EXPECT_EQ(totals.joint, milliseconds(20));
  EXPECT_EQ(totals.saving, milliseconds(5));
  EXPECT_EQ(totals.computing(), milliseconds(25));
}

TEST(TimeAccount, AsksItsMemoryOnlyForABound) {
  TimeAccount account(at(0));
  const int waits = static_cast<int>(TimeAccount::kOpenMax) + 10;
  for (int i = 0; i < waits; ++i) account.waited(static_cast<uint64_t>(i + 1), at(i), at(i + 1));
  EXPECT_EQ(account.totals(at(waits)).transferring, milliseconds(waits)) << "none is lost";
  account.called(1, kSlow, at(1));  // it was dropped
  EXPECT_EQ(account.totals(at(waits)).waiting, Duration{0});
  for (int i = 0; i < 1000; ++i) account.called(static_cast<uint64_t>(waits + i + 1), kSlow, at(i));
  account.waited(static_cast<uint64_t>(waits + 1), at(waits), at(waits + 1));
  EXPECT_EQ(account.totals(at(waits + 1)).waiting, Duration{0}) << "an old verdict is forgotten";
}

TEST(TimeAccount, NamesABoundedNumberOfMembers) {
  TimeAccount account(at(0));
  const int members = static_cast<int>(TimeAccount::kNamedMax) + 1;
  for (int i = 0; i < members; ++i) {
    account.called(1, PeerId{static_cast<uint64_t>(i + 1)}, at(i == 7 ? 1 : 2));
    account.waited(1, at(0), at(2));
  }
  const TimeTotals totals = account.totals(at(0));
  EXPECT_EQ(totals.waiting_for.size(), TimeAccount::kNamedMax);
  EXPECT_FALSE(totals.waiting_for.contains(PeerId{8})) << "the shortest one is dropped";
}

}  // namespace
}  // namespace pccl::peer
