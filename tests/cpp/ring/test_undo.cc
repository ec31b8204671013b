#include "csrc/ring/undo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace pccl::ring {
namespace {

using Bytes = std::vector<std::byte>;

Bytes numbered(size_t bytes) {
  Bytes out(bytes);
  for (size_t at = 0; at < bytes; ++at) out[at] = static_cast<std::byte>(at * 31 + at / 256);
  return out;
}

// Blocks of which one is longer than a slab, one empty; saved in pieces of every size, across
// slabs.
TEST(Undo, PutsBackExactlyWhatWasSaved) {
  const std::vector<uint64_t> sizes = {1000, Pool::kSlabBytes + 12345, 0, 77};
  const Schedule schedule(
      {.pattern = Pattern::kTransfer, .rank = 1, .world = 2, .block_bytes = sizes});
  Pool pool;
  Undo undo(pool);
  ASSERT_TRUE(undo.prepare(schedule));
  std::vector<Bytes> blocks;
  for (const uint64_t size : sizes) blocks.push_back(numbered(size));
  const std::vector<Bytes> before = blocks;
  const std::vector<uint64_t> overwritten = {999, Pool::kSlabBytes + 7, 0, 77};
  for (uint32_t block = 0; block < sizes.size(); ++block) {
    for (uint64_t at = 0, piece = 1; at < overwritten[block]; at += piece) {
      piece = std::min(2 * piece + 1, overwritten[block] - at);
      undo.save(block, at, blocks[block].data() + at, piece);
      std::memset(blocks[block].data() + at, 0xee, piece);
    }
  }
  for (uint32_t block = 0; block < sizes.size(); ++block) undo.restore(block, blocks[block].data());
  EXPECT_TRUE(blocks == before);
}

TEST(Undo, LeavesAloneWhatWasNotSaved) {
  const Schedule schedule(
      {.pattern = Pattern::kTransfer, .rank = 1, .world = 2, .block_bytes = {100}});
  Pool pool;
  Undo undo(pool);
  ASSERT_TRUE(undo.prepare(schedule));
  Bytes block = numbered(100);
  undo.save(0, 0, block.data(), 40);
  std::fill(block.begin(), block.end(), std::byte{1});
  undo.restore(0, block.data());
  EXPECT_TRUE(std::equal(block.begin(), block.begin() + 40, numbered(100).begin()));
  EXPECT_EQ(std::count(block.begin() + 40, block.end(), std::byte{1}), 60);
}

TEST(Undo, WithoutPreparationThereIsNothingToRestore) {
  Pool pool;
  const Undo undo(pool);
  Bytes block(10, std::byte{1});
  undo.restore(0, block.data());
  EXPECT_EQ(std::count(block.begin(), block.end(), std::byte{1}), 10);
}

}  // namespace
}  // namespace pccl::ring
