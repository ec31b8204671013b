#include "csrc/memory/pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace pccl::memory {
namespace {

constexpr uint64_t kMiB = 1u << 20;

TEST(Pool, GivesMemoryAgainAndAligned) {
  Pool pool;
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{5000}, size_t{2 * kMiB},
                             size_t{3 * kMiB}, Pool::kSlabBytes}) {
    std::byte* const first = pool.take(bytes);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    std::memset(first, 1, bytes);
    pool.give(first, bytes);
    std::byte* const second = pool.take(bytes);
    EXPECT_EQ(second, first) << bytes << " bytes: pages that exist already are used again";
    pool.give(second, bytes);
  }
}

TEST(Pool, ClearsWhatIsFreshAndLargeAhead) {
  Pool pool;
  std::vector<std::byte*> slabs;
  ASSERT_TRUE(pool.take_slabs(Pool::kPrefaultedBytesMin / Pool::kSlabBytes, slabs));
  const auto is_there = [&] {
    std::vector<unsigned char> pages(Pool::kSlabBytes / 4096);
    EXPECT_EQ(mincore(slabs.back(), Pool::kSlabBytes, pages.data()), 0);
    return (pages.back() & 1) != 0;
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is_there() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(is_there()) << "nobody has written to it";
  for (std::byte* const slab : slabs) pool.give(slab, Pool::kSlabBytes);
}

// A large tensor comes now and then. Its memory is kept while it comes back, and released when it
// does not.
TEST(Pool, KeepsWhatIsUsedAndNoMore) {
  Pool pool;
  const auto run = [&](uint64_t bytes) {
    pool.turn();
    Slabs slabs(pool);
    EXPECT_TRUE(slabs.reserve(bytes));
    return pool.bytes_held();
  };
  EXPECT_EQ(run(400 * kMiB), 400 * kMiB);
  EXPECT_EQ(pool.bytes_held(), 400 * kMiB);
  EXPECT_EQ(run(400 * kMiB), 400 * kMiB) << "the same memory, not twice as much";
  EXPECT_EQ(run(600 * kMiB), 600 * kMiB) << "it grows by the difference";
  for (uint32_t turn = 0; turn < 2 * Pool::kTurns; ++turn) run(kMiB);
  EXPECT_LE(pool.bytes_held(), Pool::kIdleBytes);
}

TEST(Slabs, AreARowOfBytes) {
  Pool pool;
  Slabs slabs(pool);
  const uint64_t bytes = 2 * Pool::kSlabBytes + 5000;
  ASSERT_TRUE(slabs.reserve(bytes));
  uint64_t sum = 0;
  for (uint64_t at = 0; at < bytes;) {
    const auto run = slabs.at(at);
    ASSERT_FALSE(run.empty());
    std::memset(run.data(), 1, run.size());
    at += run.size();
    sum += run.size();
  }
  EXPECT_EQ(sum, bytes);
  EXPECT_EQ(slabs.at(Pool::kSlabBytes - 1).size(), 1u);
  EXPECT_EQ(slabs.at(bytes - 1).size(), 1u);
}

TEST(Slabs, SayNoWhenThereIsNoMemoryAndHoldNothing) {
  Pool pool;
  {
    Slabs slabs(pool);
    EXPECT_FALSE(slabs.reserve(uint64_t{1} << 60));
  }
  EXPECT_EQ(pool.bytes_held(), 0u);
}

}  // namespace
}  // namespace pccl::memory
