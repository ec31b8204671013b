#include "csrc/base/secret.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <new>

namespace pccl {
namespace {

const std::string kHex = "00ff" + std::string(56, '5') + "a0b9";

bool is_wiped(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte one) { return one == std::byte{}; });
}

TEST(Secret, HexadecimalDigitsAreRead) {
  const auto secret = Secret::from_hex(kHex);
  ASSERT_TRUE(secret.has_value());
  EXPECT_EQ(secret->bytes()[0], std::byte{0x00});
  EXPECT_EQ(secret->bytes()[1], std::byte{0xff});
  EXPECT_EQ(secret->bytes()[2], std::byte{0x55});
  EXPECT_EQ(secret->bytes()[30], std::byte{0xa0});
  EXPECT_EQ(secret->bytes()[31], std::byte{0xb9});
  EXPECT_EQ(Secret::from_hex(std::string(64, 'B'))->bytes()[7], std::byte{0xbb});
}

TEST(Secret, FewerBitsAndOtherLettersAreRefused) {
  EXPECT_FALSE(Secret::from_hex("").has_value());
  EXPECT_FALSE(Secret::from_hex(kHex.substr(2)).has_value());
  EXPECT_FALSE(Secret::from_hex(kHex + "00").has_value());
  for (const char letter : {'g', 'G', 'x', '/', ':', '-', '+', ' ', '\0', '\xb5'}) {
    for (const size_t at : {size_t{0}, size_t{1}, kHex.size() - 1}) {
      std::string text = kHex;
      text[at] = letter;
      EXPECT_FALSE(Secret::from_hex(text).has_value()) << static_cast<int>(letter) << " at " << at;
    }
  }
}

// The destructor is compiled elsewhere, so that the compiler cannot drop what it writes.
TEST(Secret, NothingIsLeftOfOneThatIsDestroyed) {
  alignas(Secret) std::array<std::byte, sizeof(Secret)> memory;
  auto* const secret = new (memory.data()) Secret(*Secret::from_hex(kHex));
  EXPECT_FALSE(is_wiped(secret->bytes()));
  const std::byte* const bytes = secret->bytes().data();
  secret->~Secret();
  EXPECT_TRUE(is_wiped(std::span(bytes, Secret::kBytes)));
}

TEST(Secret, NothingIsLeftWhereOneHasMovedFrom) {
  Secret first = *Secret::from_hex(kHex);
  Secret second = *Secret::from_hex(std::string(64, '7'));
  second = std::move(first);
  EXPECT_EQ(second.bytes()[1], std::byte{0xff});
  EXPECT_TRUE(is_wiped(first.bytes()));
  const Secret third = std::move(second);
  EXPECT_EQ(third.bytes()[1], std::byte{0xff});
  EXPECT_TRUE(is_wiped(second.bytes()));
}

TEST(Secret, ItMovesOntoItself) {
  Secret secret = *Secret::from_hex(kHex);
  Secret& same = secret;
  secret = std::move(same);
  EXPECT_EQ(secret.bytes()[1], std::byte{0xff});
}

TEST(Secret, ATextIsWiped) {
  std::string text = kHex;
  wipe(text);
  EXPECT_EQ(text, std::string(kHex.size(), '\0'));
}

}  // namespace
}  // namespace pccl
