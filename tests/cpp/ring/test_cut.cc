#include "csrc/ring/cut.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "csrc/protocol/shares.h"
#include "tests/cpp/ring/shares.h"

namespace pccl::ring {
namespace {

TEST(Cut, BlocksLieEndToEndOnTheirGrain) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 400; ++round) {
    const auto world = static_cast<uint32_t>(1 + random() % 9);
    const std::vector<uint16_t> shares = random_shares(world, random);
    const uint64_t bytes = random() % (round % 2 != 0 ? 5'000'000 : 40'000);
    const auto chunk = static_cast<uint32_t>(64 * (1 + random() % 4096));
    const uint32_t grain = Cut::kGrain << random() % 7;
    const Cut cut(bytes, shares, chunk, grain);
    uint64_t at = 0;
    for (uint64_t slice = 0; slice < cut.slices(); ++slice) {
      EXPECT_EQ(at, slice * cut.slice_bytes());
      for (uint32_t rank = 0; rank < world; ++rank) {
        const Cut::Block block = cut.block(slice, rank);
        EXPECT_EQ(block.offset, at);
        EXPECT_TRUE(block.bytes == 0 || at % grain == 0);
        EXPECT_LE(block.bytes, cut.block_bytes_max());
        EXPECT_TRUE(shares[rank] > 0 || block.bytes == 0);
        at += block.bytes;
      }
    }
    EXPECT_EQ(at, bytes);
    EXPECT_LE(cut.block_bytes_max(), std::max<uint64_t>(chunk, Cut::slice_bytes_min(grain)));
  }
}

TEST(Cut, BlocksAreInProportionToTheShares) {
  const std::vector<uint16_t> shares = {0, 64, 192};
  const Cut cut(10'000'000, shares, 96 << 10);
  EXPECT_EQ(cut.slice_bytes(), 128u << 10);
  EXPECT_EQ(cut.block_bytes_max(), 96u << 10);
  EXPECT_EQ(cut.block(1, 0).bytes, 0u);
  EXPECT_EQ(cut.block(1, 1).bytes, 32u << 10);
  EXPECT_EQ(cut.block(1, 2).bytes, 96u << 10);
  const uint64_t rest = 10'000'000 % (128 << 10);
  EXPECT_NEAR(cut.block(cut.slices() - 1, 2).bytes, static_cast<double>(rest) * 0.75, 64);
}

TEST(Cut, NothingIsCutIntoNothing) {
  EXPECT_EQ(Cut(0, protocol::equal_shares(3), 4096).slices(), 0u);
}

}  // namespace
}  // namespace pccl::ring
