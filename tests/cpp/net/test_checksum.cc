#include "csrc/net/checksum.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "csrc/base/cpu.h"

namespace pccl::net {
namespace {

TEST(Checksum, IsTheOneThatIsDocumented) {
  // XXH3-64 of no bytes is 2d06800538d394c2, of "a" e6c632b61e964e1f.
  EXPECT_EQ(checksum({}), 0x38d394c2u);
  const std::byte a{'a'};
  EXPECT_EQ(checksum({&a, 1}), 0x1e964e1fu);
}

// Both with AVX2 and without.
class ChecksumTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !has_wide_vectors()) GTEST_SKIP() << "SKIPPED: this CPU has no AVX2";
    allow_wide_vectors(GetParam());
  }
  void TearDown() override { allow_wide_vectors(true); }
};
INSTANTIATE_TEST_SUITE_P(Vectors, ChecksumTest, ::testing::Bool());

TEST_P(ChecksumTest, PiecesMakeTheSameAsTheWhole) {
  std::mt19937_64 random{1};
  for (const size_t size : {0u, 1u, 63u, 240u, 241u, 1024u, 100000u}) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    Checksum sum;
    sum.add(bytes);  // discarded by reset()
    sum.reset();
    for (size_t at = 0; at < size;) {
      const size_t piece = std::min<size_t>(size - at, random() % 4000);
      sum.add(std::span(bytes).subspan(at, piece));
      at += piece;
    }
    EXPECT_EQ(sum.value(), checksum(bytes)) << size;
    if (size == 0) continue;
    const uint32_t before = checksum(bytes);
    bytes[random() % size] ^= std::byte{0x10};
    EXPECT_NE(checksum(bytes), before) << size;
  }
}

}  // namespace
}  // namespace pccl::net
