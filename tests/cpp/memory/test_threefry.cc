#include "csrc/memory/threefry.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace pccl::memory {
namespace {

using Words = std::array<uint32_t, 2>;

// The words of a counter, alone and in the last place of a vector of counters.
Words random_words(uint64_t key, Words counter) {
  Words alone = counter;
  threefry(ThreefryKey(key), alone[0], alone[1]);
  vector::Block<32> a{}, b{};
  a[7] = counter[0];
  b[7] = counter[1];
  threefry(ThreefryKey(key), a, b);
  EXPECT_EQ(alone, (Words{a[7], b[7]}));
  EXPECT_NE(alone, (Words{a[0], b[0]}));
  return alone;
}

// The known answers of the authors' library, Random123 (threefry2x32, 20 rounds).
TEST(Threefry, GivesTheKnownAnswers) {
  vector::Block<16> a{}, b{};
  threefry(ThreefryKey(0), a, b);
  EXPECT_EQ(a[3], 0x6b200159u);
  EXPECT_EQ(b[3], 0x99ba4efeu);
  EXPECT_EQ(random_words(~uint64_t{0}, {0xffffffffu, 0xffffffffu}),
            (Words{0x1cb996fcu, 0xbb002be7u}));
  EXPECT_EQ(random_words(0x03707344'13198a2eu, {0x243f6a88u, 0x85a308d3u}),
            (Words{0xc4923a9cu, 0x483df7a0u}));
}

}  // namespace
}  // namespace pccl::memory
