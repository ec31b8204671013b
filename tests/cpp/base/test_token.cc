#include "csrc/base/token.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pccl {
namespace {

// The bytes 0, 1, 2, … 31, in base64url.
const std::string kSecret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const std::string kText = "pccl1.k3v9x2mq7a1p." + kSecret;

std::string refusal(const std::string& text) {
  const auto token = parse_token(text);
  if (token.ok()) return "taken";
  EXPECT_EQ(token.status().code, Code::kInvalidArgument);
  EXPECT_EQ(token.status().message.find(kSecret.substr(0, 8)), std::string::npos);
  return token.status().message;
}

TEST(Token, IsRead) {
  Result<Token> token = parse_token(kText);
  ASSERT_TRUE(token.ok()) << token.status().message;
  EXPECT_EQ(token.value().id, "k3v9x2mq7a1p");
  for (size_t i = 0; i < Secret::kBytes; ++i)
    EXPECT_EQ(token.value().secret.bytes()[i], static_cast<std::byte>(i));
}

TEST(Token, LettersThatOnlyBase64UrlHasAreRead) {
  std::string secret(42, '_');
  Result<Token> token = parse_token("pccl1.alice000." + secret + "8");
  ASSERT_TRUE(token.ok());
  const auto bytes = token.value().secret.bytes();
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end() - 1,
                          [](std::byte one) { return one == std::byte{0xff}; }));
}

TEST(Token, OtherTextIsRefusedWithoutRepeatingIt) {
  EXPECT_EQ(refusal(""), "is no token: a token begins with pccl1.");
  EXPECT_EQ(refusal("pccl2." + kText.substr(6)), "is no token: a token begins with pccl1.");
  const std::string bad_id = "has an id that is not 8 to 16 lowercase letters and digits";
  EXPECT_EQ(refusal("pccl1."), bad_id);
  EXPECT_EQ(refusal("pccl1.k3v9x2m." + kSecret), bad_id);
  EXPECT_EQ(refusal("pccl1.k3v9x2mq7a1pk3v9x." + kSecret), bad_id);
  EXPECT_EQ(refusal("pccl1.K3v9x2mq7a1p." + kSecret), bad_id);
  const std::string damaged = "has a secret that is damaged: was it copied as a whole?";
  EXPECT_EQ(refusal("pccl1.k3v9x2mq7a1p"), damaged);
  EXPECT_EQ(refusal("pccl1.k3v9x2mq7a1p."), damaged);
  EXPECT_EQ(refusal(kText.substr(0, kText.size() - 1)), damaged);
  EXPECT_EQ(refusal(kText + "A"), damaged);
  EXPECT_EQ(refusal(kText.substr(0, kText.size() - 1) + "9"), damaged) << "bits of no byte";
  for (const char letter : {'+', '/', '=', ' ', '\n', '\0', '\xb5'}) {
    std::string text = kText;
    text[30] = letter;
    EXPECT_EQ(refusal(text), damaged) << static_cast<int>(letter);
  }
}

}  // namespace
}  // namespace pccl
