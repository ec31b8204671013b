#include "csrc/ring/one_shot.h"

#include <gtest/gtest.h>

#include "tests/cpp/ring/parts.h"

namespace pccl::ring {
namespace {

TEST(OneShot, IsFinishedWhenAllHaveComeAndGone) {
  OneShot one_shot(parts_among({{4}, {7}, {9}}, 8, 1), 1);
  EXPECT_TRUE(one_shot.active());
  EXPECT_EQ(one_shot.rank_of({9}), 2u);
  EXPECT_EQ(one_shot.rank_of({7}), std::nullopt) << "itself";
  EXPECT_EQ(one_shot.rank_of({5}), std::nullopt);
  EXPECT_TRUE(one_shot.wants_to_send(0));
  EXPECT_FALSE(one_shot.wants_to_send(1));
  one_shot.sent(0);
  EXPECT_FALSE(one_shot.wants_to_send(0));
  one_shot.sent(2);
  one_shot.coming(0);
  one_shot.arrived();
  EXPECT_FALSE(one_shot.all_here());
  one_shot.coming(2);
  one_shot.arrived();
  EXPECT_TRUE(one_shot.all_here());
  EXPECT_TRUE(one_shot.finished());
}

TEST(OneShot, OneThatGoesAroundIsFinishedFromTheBeginning) {
  EXPECT_FALSE(OneShot().active());
  EXPECT_TRUE(OneShot().finished());
}

TEST(OneShot, APartOfNoBytesNeitherComesNorGoes) {
  std::vector<Part> parts = parts_among({{4}, {7}, {9}}, 8, 1);
  parts[0].to = parts[2].from = 0;
  OneShot one_shot(parts, 1);
  EXPECT_FALSE(one_shot.wants_to_send(0));
  EXPECT_TRUE(one_shot.may_request(0));
  EXPECT_TRUE(one_shot.wants_to_send(2));
  EXPECT_FALSE(one_shot.may_request(2));
  one_shot.sent(2);
  one_shot.coming(0);
  one_shot.arrived();
  EXPECT_TRUE(one_shot.finished());
  parts[2].to = parts[0].from = 0;
  EXPECT_TRUE(OneShot(parts, 1).finished());
}

TEST(OneShot, NothingGoesToWhoIsLost) {
  OneShot one_shot(parts_among({{4}, {7}, {9}}, 8, 1), 0);
  one_shot.lost({9});
  EXPECT_FALSE(one_shot.wants_to_send(2));
  EXPECT_FALSE(one_shot.may_request(2));
  EXPECT_TRUE(one_shot.wants_to_send(1));
  one_shot.lost({5});
}

TEST(OneShot, IsAskedForOnceAndNotWhenItComes) {
  OneShot one_shot(parts_among({{4}, {7}, {9}}, 8, 1), 0);
  EXPECT_TRUE(one_shot.may_request(1));
  one_shot.requested(1);
  EXPECT_FALSE(one_shot.may_request(1));
  one_shot.coming(2);
  EXPECT_FALSE(one_shot.may_request(2));
}

TEST(Window, BothEndsCountTheSame) {
  constexpr uint64_t kPiece = 8192;
  Window sender(8 * kPiece), receiver(8 * kPiece);
  for (int sent = 0; sent < 8; ++sent) {
    ASSERT_TRUE(sender.fits(kPiece));
    sender.sent(kPiece);
    ASSERT_TRUE(receiver.arriving(kPiece));
  }
  EXPECT_FALSE(sender.fits(1));
  receiver.taken(kPiece);
  EXPECT_EQ(receiver.news(), std::nullopt) << "not worth a frame";
  receiver.taken(kPiece);
  ASSERT_EQ(receiver.news(), 2 * kPiece);
  receiver.announced();
  EXPECT_EQ(receiver.news(), std::nullopt);
  EXPECT_TRUE(sender.on_taken(2 * kPiece));
  EXPECT_TRUE(sender.fits(2 * kPiece));
  EXPECT_FALSE(sender.fits(2 * kPiece + 1));
  EXPECT_TRUE(sender.on_taken(kPiece)) << "an older frame, on another lane";
  EXPECT_TRUE(sender.fits(2 * kPiece));
  EXPECT_FALSE(sender.on_taken(9 * kPiece)) << "more than was sent";
  EXPECT_TRUE(receiver.arriving(2 * kPiece));
  EXPECT_FALSE(receiver.arriving(1)) << "more than it was allowed";
}

TEST(Window, IsScarceWhenMoreThanHalfOfItIsUsed) {
  Window window(1 << 20);
  window.arriving(1 << 19);
  EXPECT_FALSE(window.scarce());
  window.arriving(1);
  EXPECT_TRUE(window.scarce());
}

TEST(Window, ASmallCopyCountsAsTheMemoryThatItTakes) {
  Window sender(1 << 20), receiver(1 << 20);
  for (int count = 0; count < 256; ++count) {
    ASSERT_TRUE(sender.fits(4)) << count;
    sender.sent(4);
    ASSERT_TRUE(receiver.arriving(4));
  }
  EXPECT_FALSE(sender.fits(4));
  EXPECT_FALSE(receiver.arriving(4));
}

TEST(DuplicateFilter, HoldsIntervalsInAnyOrder) {
  DuplicateFilter known;
  const auto op = [](uint32_t sequence) { return OpKey{TagId{5}, sequence}; };
  EXPECT_FALSE(known.contains(op(0)));
  for (const uint32_t sequence : {0u, 1u, 5u, 3u, 4u, 9u, 5u}) known.add(op(sequence));
  for (uint32_t sequence = 0; sequence < 12; ++sequence) {
    const bool added = sequence <= 1 || (sequence >= 3 && sequence <= 5) || sequence == 9;
    EXPECT_EQ(known.contains(op(sequence)), added) << sequence;
  }
  known.add(op(2));
  EXPECT_TRUE(known.contains(op(2)));
  EXPECT_TRUE(known.contains(op(5)));
  EXPECT_FALSE(known.contains(op(6)));
  EXPECT_FALSE(known.contains({TagId{6}, 2}));
  known.add(op(UINT32_MAX - 1));
  EXPECT_FALSE(known.contains(op(UINT32_MAX - 2)));
  known.clear();
  EXPECT_FALSE(known.contains(op(2)));
}

}  // namespace
}  // namespace pccl::ring
