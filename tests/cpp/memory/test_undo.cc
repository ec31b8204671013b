#include "csrc/memory/undo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pccl::memory {
namespace {

using Bytes = std::vector<std::byte>;

Bytes numbered(size_t bytes) {
  Bytes out(bytes);
  for (size_t at = 0; at < bytes; ++at) out[at] = static_cast<std::byte>(at * 31 + at / 256);
  return out;
}

// Three chunks across slabs, saved alternately and in pieces of every size.
TEST(Undo, GivesBackWhatWasSavedOfEachUnit) {
  constexpr size_t kChunk = Pool::kSlabBytes / 2 + 777;
  const Bytes all = numbered(3 * kChunk);
  Pool pool;
  Undo undo(pool);
  ASSERT_TRUE(undo.reserve(all.size(), 3));
  const size_t ends[3] = {kChunk, 12345, 0};
  for (size_t at = 0, piece = 1; at < kChunk; at += piece) {
    piece = std::min(2 * piece + 1, kChunk - at);
    for (uint64_t chunk = 0; chunk < 3; ++chunk) {
      const size_t bytes = std::min(piece, ends[chunk] - std::min(ends[chunk], at));
      undo.save(chunk, chunk * kChunk + at, all.data() + chunk * kChunk + at, bytes);
    }
  }
  for (uint64_t chunk = 0; chunk < 3; ++chunk) {
    EXPECT_EQ(undo.saved(chunk), ends[chunk]);
    Bytes back(kChunk);
    undo.restore(chunk, chunk * kChunk, back.data());
    const auto start = all.begin() + static_cast<ptrdiff_t>(chunk * kChunk);
    EXPECT_TRUE(std::equal(start, start + static_cast<ptrdiff_t>(ends[chunk]), back.begin()));
    EXPECT_EQ(
        std::count(back.begin() + static_cast<ptrdiff_t>(ends[chunk]), back.end(), std::byte{}),
        kChunk - ends[chunk]);
    EXPECT_EQ(undo.saved(chunk), 0u) << "once";
  }
}

TEST(Undo, GivesBackAUnitInTwoParts) {
  Pool pool;
  Undo undo(pool);
  ASSERT_TRUE(undo.reserve(1000, 2));
  const Bytes some = numbered(500);
  undo.save(1, 500, some.data(), 400);
  Bytes back(500);
  undo.restore(1, 500, back.data(), 450);
  EXPECT_EQ(undo.saved(1), 400u) << "there is nothing that far";
  undo.restore(1, 500, back.data(), 100);
  EXPECT_EQ(undo.saved(1), 100u);
  EXPECT_TRUE(std::equal(back.begin() + 100, back.begin() + 400, some.begin() + 100));
  EXPECT_EQ(std::count(back.begin(), back.begin() + 100, std::byte{}), 100);
  undo.restore(1, 500, back.data());
  EXPECT_TRUE(std::equal(back.begin(), back.begin() + 400, some.begin()));
}

TEST(Undo, ShrunkItKeepsWhatLiesBefore) {
  Pool pool;
  Undo undo(pool), small(pool);
  ASSERT_TRUE(undo.reserve(3 * Pool::kSlabBytes + 100, 1));
  const Bytes some = numbered(Pool::kSlabBytes + 1);
  undo.save(0, 0, some.data(), some.size());
  undo.shrink(some.size());
  const uint64_t held = pool.bytes_held();
  ASSERT_TRUE(small.reserve(Pool::kSlabBytes + 100, 1));
  EXPECT_EQ(pool.bytes_held(), held) << "what was given back is there for others";
  Bytes back(some.size());
  undo.restore(0, 0, back.data());
  EXPECT_TRUE(back == some);
}

TEST(Undo, AnEmptyRowSavesNothing) {
  Pool pool;
  Undo undo(pool);
  ASSERT_TRUE(undo.reserve(0, 3));
  std::byte nothing{};
  undo.save(2, 0, &nothing, 0);
  EXPECT_EQ(undo.saved(2), 0u);
}

TEST(Undo, SaysWhenThereIsNoRoom) {
  Pool pool;
  Undo undo(pool);
  EXPECT_FALSE(undo.reserve(uint64_t{1} << 60, 5));
}

}  // namespace
}  // namespace pccl::memory
