#include "csrc/ring/head_start.h"

#include <gtest/gtest.h>

namespace pccl::ring {
namespace {

using protocol::kHeadStartBytes;

OpKey key_of(uint32_t sequence) { return {TagId{}, sequence}; }

TEST(HeadStart, ThereIsRoomAgainForWhatTheOtherHasAskedFor) {
  HeadStart head_start;
  EXPECT_EQ(head_start.room(), kHeadStartBytes);
  head_start.leaves(key_of(0), 5000);
  head_start.leaves(key_of(1), kHeadStartBytes - 5000);
  EXPECT_EQ(head_start.room(), 0u);
  head_start.asked(key_of(0));
  EXPECT_EQ(head_start.room(), 5000u);
  head_start.asked(key_of(0));  // further credit
  head_start.asked(key_of(7));  // credit of an operation without eager data
  EXPECT_EQ(head_start.room(), 5000u);
}

net::FrameHeader chunk(uint32_t sequence, uint32_t bytes) {
  net::FrameHeader header;
  header.op = key_of(sequence);
  header.length = bytes;
  return header;
}

TEST(EarlyChunks, KeepsThemInTheirOrderUntilTheyAreTaken) {
  EarlyChunks early;
  EXPECT_EQ(early.find(key_of(0)), nullptr);
  EXPECT_EQ(early.arriving(chunk(0, 10)), 0u);
  EXPECT_EQ(early.arriving(chunk(1, 10)), 0u);
  EXPECT_EQ(early.arriving(chunk(0, 20)), 1u);
  early.take(key_of(0), 0);
  EXPECT_EQ(early.arriving(chunk(0, 30)), 2u) << "no index comes twice";
  ASSERT_EQ(early.find(key_of(0))->chunks.size(), 2u);
  EXPECT_EQ(early.find(key_of(0))->chunks.begin()->second.header.length, 20u);
  early.drop(key_of(0));
  EXPECT_EQ(early.first(), key_of(1));
  early.drop(key_of(1));
  EXPECT_TRUE(early.empty());
}

// The sender counts the same way, so all that it may send fits.
TEST(EarlyChunks, HasRoomForOneHeadStart) {
  EarlyChunks early;
  for (uint64_t used = 0; used < kHeadStartBytes; used += 64 << 10)
    ASSERT_TRUE(early.arriving(chunk(0, 64 << 10)).has_value());
  EXPECT_FALSE(early.arriving(chunk(1, 0)).has_value()) << "a small one takes memory, too";
  early.take(key_of(0), 7);
  for (int count = 0; count < 16; ++count) ASSERT_TRUE(early.arriving(chunk(1, 0)).has_value());
  EXPECT_FALSE(early.arriving(chunk(1, 1)).has_value());
  early.asked(key_of(0));
  EXPECT_TRUE(early.arriving(chunk(1, 4u << 20)).has_value());
  early.drop(key_of(0));
  EXPECT_FALSE(early.arriving(chunk(1, 4u << 20)).has_value()) << "it was not counted any more";
}

TEST(EarlyChunks, AreOfSoManyOperationsAtMost) {
  EarlyChunks early;
  for (uint32_t sequence = 0; sequence < protocol::kOpsOpenMax; ++sequence) {
    ASSERT_EQ(early.arriving(chunk(sequence, 1)), 0u);
    early.take(key_of(sequence), 0);
  }
  EXPECT_FALSE(early.arriving(chunk(protocol::kOpsOpenMax, 1)).has_value());
  EXPECT_EQ(early.arriving(chunk(7, 1)), 1u);
}

}  // namespace
}  // namespace pccl::ring
