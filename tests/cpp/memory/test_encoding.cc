#include "csrc/memory/encoding.h"

#include <gtest/gtest.h>

namespace pccl::memory {
namespace {

constexpr WireFormat kPlain{}, kEight{8, 128, 8}, kFour{4, 64, 8}, kBfloat16{16, 0, 16};

TEST(Encoding, EachFormatHasItsSizes) {
  EXPECT_FALSE(encoding_of_contributions(kPlain) || encoding_of_result(kPlain));
  EXPECT_EQ(encoding_of_contributions(kEight), (Quantization{8, 128}));
  EXPECT_EQ(encoding_of_result(kEight), (Quantization{8, 128}));
  EXPECT_EQ(encoding_of_contributions(kFour), (Quantization{4, 64}));
  EXPECT_EQ(encoding_of_result(kFour), (Quantization{8, 256}));
  EXPECT_EQ(encoding_of_contributions(kBfloat16)->bits, 16);
  EXPECT_EQ(encoding_of_result({8, 128, 16})->bits, 16);
}

TEST(Encoding, AGrainHasWholeBlocksOfBoth) {
  EXPECT_EQ(grain_of(kPlain), 1u);
  EXPECT_EQ(grain_of(kBfloat16), 1u);
  EXPECT_EQ(grain_of(kEight), 128u);
  EXPECT_EQ(grain_of(kFour), 256u);
  EXPECT_EQ(grain_of({4, 1024, 8}), 1024u);
  EXPECT_EQ(grain_of({4, 64, 16}), 64u);
}

TEST(Encoding, BytesOnTheWire) {
  EXPECT_EQ(wire_bytes({}, 4096, 4), 4096u) << "as in memory";
  EXPECT_EQ(wire_bytes(encoding_of_contributions(kEight), 4096, 4), 1024u + 3 * 8);
  EXPECT_EQ(wire_bytes(encoding_of_contributions(kFour), 4096, 2), 1024u + 3 * 32);
  EXPECT_EQ(wire_bytes(encoding_of_contributions(kBfloat16), 4096, 4), 2048u);
  EXPECT_EQ(wire_bytes(encoding_of_result(kEight), 0, 4), 0u);
}

}  // namespace
}  // namespace pccl::memory
