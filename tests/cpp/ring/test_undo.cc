#include "csrc/ring/undo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pccl::ring {
namespace {

using Bytes = std::vector<std::byte>;

Bytes numbered(size_t bytes) {
  Bytes out(bytes);
  for (size_t at = 0; at < bytes; ++at) out[at] = static_cast<std::byte>(at * 31 + at / 256);
  return out;
}

// Saved in pieces of every size, across slabs; read back in pieces of others.
TEST(Undo, GivesBackWhatWasSavedFromAnyPlaceOn) {
  const Bytes all = numbered(Pool::kSlabBytes + 12345);
  Pool pool;
  Undo undo(pool);
  ASSERT_TRUE(undo.reserve(all.size()));
  for (size_t at = 0, piece = 1; at < all.size(); at += piece) {
    piece = std::min(2 * piece + 1, all.size() - at);
    undo.save(all.data() + at, piece);
    EXPECT_EQ(undo.length(), at + piece);
  }
  for (const size_t start : {size_t{0}, size_t{1}, Pool::kSlabBytes - 5, Pool::kSlabBytes}) {
    Bytes back(all.size() - start);
    undo.restore(start, back.data(), back.size());
    EXPECT_TRUE(std::equal(back.begin(), back.end(), all.begin() + static_cast<ptrdiff_t>(start)));
  }
}

TEST(Undo, ClosedItKeepsWhatWasSavedAndNoMore) {
  Pool pool;
  Undo undo(pool), small(pool);
  ASSERT_TRUE(undo.reserve(3 * Pool::kSlabBytes + 100));
  const Bytes some = numbered(Pool::kSlabBytes + 1);
  undo.save(some.data(), some.size());
  undo.close();
  const uint64_t held = pool.bytes_held();
  ASSERT_TRUE(small.reserve(Pool::kSlabBytes + 100));
  EXPECT_EQ(pool.bytes_held(), held) << "what was given back is there for others";
  Bytes back(some.size());
  undo.restore(0, back.data(), back.size());
  EXPECT_TRUE(back == some);
}

TEST(Undo, SaysWhenThereIsNoRoom) {
  Pool pool;
  Undo undo(pool);
  EXPECT_FALSE(undo.reserve(uint64_t{1} << 60));
}

}  // namespace
}  // namespace pccl::ring
