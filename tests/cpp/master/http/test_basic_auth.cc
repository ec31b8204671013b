#include "master/http/basic_auth.h"

#include <gtest/gtest.h>

#include "tests/cpp/master/keyring_lines.h"
#include "tests/cpp/master/logins.h"

namespace pccl::master::http {
namespace {

class BasicAuthTest : public testing::Test {
 protected:
  BasicAuthTest() {
    add("alice000", "alice", "a5");
    add("bob00000", "bob", "5a");
  }
  void add(const TokenId& id, const std::string& name, const std::string& byte) {
    keyring.emplace(id, Token{name, {}, *Secret::from_hex(secret_hex(byte)), Role::kObserver});
  }
  std::string holder(const std::string& authorization) const {
    const auto found = proven_by(authorization, keyring);
    return found ? found->token + " of " + found->name : "";
  }
  Keyring keyring;
};

TEST_F(BasicAuthTest, APasswordProvesItsToken) {
  EXPECT_EQ(holder(kLoginOfAlice), "alice000 of alice");
  EXPECT_EQ(holder("bASIC" + kLoginOfAlice.substr(5)), "alice000 of alice");
  std::string unpadded = kLoginOfAlice;
  while (unpadded.ends_with('=')) unpadded.pop_back();
  EXPECT_EQ(holder(unpadded), "alice000 of alice");
}

TEST_F(BasicAuthTest, APasswordOfAnotherTokenProvesNothing) {
  EXPECT_EQ(holder(kLoginOfBobWithWrongPassword), "");
  EXPECT_EQ(holder(kLoginOfStranger), "");
  keyring.erase("alice000");
  EXPECT_EQ(holder(kLoginOfAlice), "");
}

TEST_F(BasicAuthTest, AnotherHeaderProvesNothing) {
  std::string changed = kLoginOfAlice;
  changed[30] = changed[30] == 'A' ? 'B' : 'A';
  for (const std::string& text :
       {std::string(), std::string("alice000"), std::string("Basic"), std::string("Basic "),
        std::string("Basic alice000"), "Bearer" + kLoginOfAlice.substr(5), kLoginOfAlice.substr(6),
        "Basic " + kLoginOfAlice.substr(5), kLoginOfAlice + "!", kLoginOfAlice.substr(0, 46),
        changed, std::string("Basic YWxpY2UwMDA6"), std::string("Basic YWxpY2UwMDA"),
        std::string("Basic Og=="), "Basic " + std::string(8000, 'A')})
    EXPECT_EQ(holder(text), "") << text;
}

}  // namespace
}  // namespace pccl::master::http
