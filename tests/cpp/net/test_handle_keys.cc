#include "csrc/net/handle_keys.h"

#include <gtest/gtest.h>

namespace pccl::net {
namespace {

constexpr size_t kDigits = protocol::ReconfigureHandle::kKeyDigits;

template <typename Range>
std::string digits(const Range& bytes) {
  std::string out;
  for (const auto byte : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    out += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
  }
  return out;
}

// The private key has the bytes first, first + 1, ...
HandleKey counted_from(int first, const std::string& shown) {
  HandleKey key;
  for (std::byte& byte : key.secret.bytes) byte = static_cast<std::byte>(first++);
  key.shown = shown;
  return key;
}

// The expected bytes were computed with an implementation of RFC 7748, section 5, in Python, and
// with the derivation of test_keys.cc:
//   hkdf(x25519(private, other), b"pccl handle" + identity), and hkdf(that, b"pccl control")
TEST(HandleKeys, BothEndsDeriveTheSecretThatIsDocumented) {
  const std::string a = "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f";
  const std::string b = "358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd166254";
  const HandleKey dialler = counted_from(0, a), acceptor = counted_from(32, b);
  const auto token = handle_token(dialler, b);
  ASSERT_TRUE(token);
  EXPECT_EQ(token->id, "handle." + a + "." + b);
  EXPECT_EQ(digits(token->secret.bytes()),
            "c69260f3bbcb339e0c4366de7d506fd6bfe7ffa65edc4ecf97f6bc56358a2b41");
  const auto key = handle_control_key(acceptor, a);
  ASSERT_TRUE(key);
  EXPECT_EQ(digits(key->bytes), "9eaa94985121c623b90faaefef1230916eac5df49183847c5048f38aa7b080fa");
  EXPECT_EQ(digits(control_key(token->secret.bytes()).bytes), digits(key->bytes));
}

TEST(HandleKeys, TheSecretBelongsToTwoKeysAndTheirRoles) {
  const HandleKey one = make_handle_key(), two = make_handle_key(), three = make_handle_key();
  const auto of = [](const HandleKey& own, const HandleKey& other) {
    return digits(handle_control_key(own, other.shown)->bytes);
  };
  EXPECT_NE(of(one, two), of(one, three));
  const auto dialled = digits(control_key(handle_token(one, two.shown)->secret.bytes()).bytes);
  EXPECT_EQ(dialled, of(two, one));
  EXPECT_NE(dialled, of(one, two)) << "who dials counts";
  EXPECT_NE(one.shown, two.shown);
}

TEST(HandleKeys, APublicKeyOfAnotherFormOrOfSmallOrderIsRefused) {
  const HandleKey own = make_handle_key();
  std::string order_two(kDigits, '0');
  order_two[1] = '1';
  for (const std::string& text :
       {std::string(), own.shown.substr(1), own.shown + "0", std::string(kDigits, 'F'),
        std::string(kDigits, '0'), order_two}) {
    EXPECT_FALSE(handle_token(own, text)) << text;
    EXPECT_FALSE(handle_control_key(own, text)) << text;
  }
}

TEST(HandleKeys, AnIdentityHasBothKeys) {
  const HandleKey own = make_handle_key(), other = make_handle_key();
  const auto names = handle_identity(handle_token(own, other.shown)->id);
  ASSERT_TRUE(names);
  EXPECT_EQ(names->dialler, own.shown);
  EXPECT_EQ(names->acceptor, other.shown);
  for (const std::string& text :
       {std::string(), std::string("abcdefgh"), "handle." + own.shown,
        "handle." + own.shown + "." + other.shown + "0", "handle." + own.shown + other.shown}) {
    EXPECT_FALSE(handle_identity(text)) << text;
  }
}

}  // namespace
}  // namespace pccl::net
