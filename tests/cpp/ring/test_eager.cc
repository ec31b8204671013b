#include "csrc/ring/eager.h"

#include <gtest/gtest.h>

namespace pccl::ring {
namespace {

using protocol::kEagerBytes;
using protocol::kEagerBytesLarge;

OpKey key_of(uint32_t sequence) { return {TagId{}, sequence}; }

TEST(EagerBudget, ThereIsRoomAgainForWhatTheOtherHasAskedFor) {
  EagerBudget eager_budget;
  EXPECT_EQ(eager_budget.room(false), kEagerBytesLarge);
  eager_budget.leaves(key_of(0), 5000);
  eager_budget.leaves(key_of(1), kEagerBytesLarge - 5000);
  EXPECT_EQ(eager_budget.room(false), 0u);
  eager_budget.requested(key_of(0));
  EXPECT_EQ(eager_budget.room(false), 5000u);
  eager_budget.requested(key_of(0));  // further credit
  eager_budget.requested(key_of(7));  // credit of an operation without eager data
  EXPECT_EQ(eager_budget.room(false), 5000u);
}

TEST(EagerBudget, SomeOfItIsForOneShotOperations) {
  EagerBudget eager_budget;
  EXPECT_EQ(eager_budget.room(true), kEagerBytes);
  eager_budget.leaves(key_of(0), kEagerBytesLarge);
  EXPECT_EQ(eager_budget.room(false), 0u);
  EXPECT_EQ(eager_budget.room(true), kEagerBytes - kEagerBytesLarge);
  eager_budget.leaves(key_of(1), kEagerBytes - kEagerBytesLarge);
  EXPECT_EQ(eager_budget.room(false), 0u);
  EXPECT_EQ(eager_budget.room(true), 0u);
}

protocol::FrameHeader chunk(uint32_t sequence, uint32_t bytes) {
  protocol::FrameHeader header;
  header.op = key_of(sequence);
  header.length = bytes;
  return header;
}

TEST(UnexpectedMessages, KeepsThemInTheirOrderUntilTheyAreTaken) {
  UnexpectedMessages unexpected;
  EXPECT_EQ(unexpected.find(key_of(0)), nullptr);
  EXPECT_EQ(unexpected.arriving(chunk(0, 10)), 0u);
  EXPECT_EQ(unexpected.arriving(chunk(1, 10)), 0u);
  EXPECT_EQ(unexpected.arriving(chunk(0, 20)), 1u);
  unexpected.take(key_of(0), 0);
  EXPECT_EQ(unexpected.arriving(chunk(0, 30)), 2u) << "no index comes twice";
  ASSERT_EQ(unexpected.find(key_of(0))->chunks.size(), 2u);
  EXPECT_EQ(unexpected.find(key_of(0))->chunks.begin()->second.header.length, 20u);
  unexpected.drop(key_of(0));
  EXPECT_EQ(unexpected.first(), key_of(1));
  unexpected.drop(key_of(1));
  EXPECT_EQ(unexpected.size(), 0u);
}

// The sender counts the same way, so all that it may send fits.
TEST(UnexpectedMessages, HasRoomForAllEagerDataOfALink) {
  UnexpectedMessages unexpected;
  for (uint64_t used = 0; used < kEagerBytes; used += 64 << 10)
    ASSERT_TRUE(unexpected.arriving(chunk(0, 64 << 10)).has_value());
  EXPECT_FALSE(unexpected.arriving(chunk(1, 0)).has_value()) << "a small one takes memory, too";
  unexpected.take(key_of(0), 7);
  for (int count = 0; count < 16; ++count)
    ASSERT_TRUE(unexpected.arriving(chunk(1, 0)).has_value());
  EXPECT_FALSE(unexpected.arriving(chunk(1, 1)).has_value());
  unexpected.requested(key_of(0));
  EXPECT_TRUE(unexpected.arriving(chunk(1, 5u << 20)).has_value());
  unexpected.drop(key_of(0));
  EXPECT_FALSE(unexpected.arriving(chunk(1, 5u << 20)).has_value())
      << "it was not counted any more";
}

TEST(UnexpectedMessages, AreOfSoManyOperationsAtMost) {
  UnexpectedMessages unexpected;
  for (uint32_t sequence = 0; sequence < protocol::kOpsOpenMax; ++sequence) {
    ASSERT_EQ(unexpected.arriving(chunk(sequence, 1)), 0u);
    unexpected.take(key_of(sequence), 0);
  }
  EXPECT_FALSE(unexpected.arriving(chunk(protocol::kOpsOpenMax, 1)).has_value());
  EXPECT_FALSE(unexpected.keep(chunk(protocol::kOpsOpenMax, 0)));
  EXPECT_TRUE(unexpected.keep(chunk(7, 0))) << "no new entry";
  EXPECT_EQ(unexpected.arriving(chunk(7, 1)), 1u);
}

TEST(UnexpectedMessages, KeepsTheLatestCreditOfAnOperation) {
  UnexpectedMessages unexpected;
  protocol::FrameHeader credit = chunk(0, 0);
  credit.digest = 7;
  for (const uint64_t steps : {3, 5}) {
    credit.value = steps;
    ASSERT_TRUE(unexpected.keep(credit));
  }
  const UnexpectedMessages::Kept* const kept = unexpected.find(key_of(0));
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->credit->digest, 7u);
  EXPECT_EQ(kept->credit->steps, 5u);
  EXPECT_EQ(kept->begun, 0u);
  unexpected.check();
}

}  // namespace
}  // namespace pccl::ring
